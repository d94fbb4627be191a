"""How much of an answer stands in its prompt, and what look-ups gain by it (Liu et al., section 7).

BLEU-4 is sacrebleu's, ROUGE-L Google's, both over token ids: what n-gram look-up compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu import sentence_bleu
from scipy.stats import spearmanr

from ops.report.blocks import Chart, Section, Series, Table
from ops.report.results import Mean
from router.fit.profile import Profile
from router.fit.speedup import harmonic_mean, speedup

Floats = NDArray[np.float64]

LOOK_UP = "ngram"
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The study's intervals of BLEU-4."""
RESAMPLES = 1000


class _Spaces:
    def tokenize(self, text: str) -> list[str]:
        return text.split()


@dataclass(frozen=True)
class Overlap:
    """Of n prompts: BLEU-4 and ROUGE-L's F1 of prompt and plain answer [n], between 0 and 1, and
    the speedups [n, m] of methods."""

    bleu: Floats
    rouge: Floats
    methods: tuple[str, ...]
    speedups: Floats

    def of(self, method: str) -> Floats:
        """A method's speedups [n]."""
        return self.speedups[:, self.methods.index(method)]

    def correlation(self, seed: int) -> Mean:
        """Spearman's, of BLEU-4 and the look-up's speedup, with a bootstrap interval."""
        pairs = np.column_stack([self.bleu, self.of(LOOK_UP)])
        rng = np.random.default_rng(seed)
        drawn = [
            _spearman(pairs[rng.integers(0, len(pairs), len(pairs))]) for _ in range(RESAMPLES)
        ]
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        return Mean(value=_spearman(pairs), low=float(low), high=float(high))


def _spearman(pairs: Floats) -> float:
    # Of a constant column there is no rank to speak of.
    if min(np.ptp(pairs, axis=0)) == 0.0:
        return float("nan")
    return float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)


def overlap_of(
    rows: Sequence[Mapping[str, Any]], profile: Profile, temperature: float
) -> Overlap | None:
    """Return the overlap of prompts and answers of the traced prompts that count for speed.

    Returns None with fewer than three, or if no n-gram look-up was measured.
    """
    if LOOK_UP not in profile.meta.methods:
        return None
    paired = profile.paired()
    texts = {row["prompt_id"]: (row["prompt"], row["answer"]) for row in rows}
    at = [
        row
        for row, prompt in enumerate(paired.prompt_ids)
        if prompt in texts and paired.temperatures[row] == temperature
    ]
    if len(at) < 3:
        return None
    pairs = [texts[paired.prompt_ids[row]] for row in at]
    scores = [overlap(prompt, answer) for prompt, answer in pairs]
    return Overlap(
        bleu=np.asarray([bleu for bleu, _ in scores]),
        rouge=np.asarray([rouge for _, rouge in scores]),
        methods=paired.methods,
        speedups=paired.speedups[at],
    )


def overlap(prompt: Sequence[int], answer: Sequence[int]) -> tuple[float, float]:
    """BLEU-4 (smoothed exponentially) and ROUGE-L's F1 of an answer, its prompt the reference."""
    # it brings a log handler that closes the standard error it was imported under as soon as
    # somebody else configures logging, as vLLM does: no import for those who only look here
    from rouge_score.rouge_scorer import RougeScorer

    given, made = " ".join(map(str, prompt)), " ".join(map(str, answer))
    bleu = sentence_bleu(made, [given], tokenize="none").score / 100.0
    rouge = RougeScorer(["rougeL"], tokenizer=_Spaces()).score(given, made)["rougeL"]
    return bleu, float(rouge.fmeasure)


def overlap_section(found: Overlap, baseline: str, seed: int) -> Section:
    """The study's Figure 8 at batch 1."""
    correlation = found.correlation(seed)
    others = [n for n in found.methods if n not in (LOOK_UP, baseline)]
    inside = np.clip(np.digitize(found.bleu, EDGES[1:-1]), 0, len(EDGES) - 2)
    rows: list[list[Any]] = []
    for part, (low, high) in enumerate(pairwise(EDGES)):
        there = inside == part
        if not there.any():
            continue
        own = harmonic_mean(found.of(LOOK_UP)[there])
        gains = [speedup(harmonic_mean(found.of(n)[there]), own) for n in others]
        rows.append([f"{low:g} to {high:g}", int(there.sum()), own, *gains])
    texts = [f"ROUGE-L {rouge:.2f}" for rouge in found.rouge]
    return Section(
        "overlap",
        "Overlap of prompt and answer",
        [
            f"The rank correlation (Spearman) of BLEU-4 and {LOOK_UP}'s speedup over "
            f"{len(found.bleu)} prompts is {correlation.value:.2f} (95%: {correlation.low:.2f} to "
            f"{correlation.high:.2f}); of ROUGE-L it is "
            f"{_spearman(np.column_stack([found.rouge, found.of(LOOK_UP)])):.2f}. Overlap is with "
            "the prompt alone; look-ups find what the answer repeats of itself too."
        ],
        [
            Table(
                "overlap-table",
                f"{LOOK_UP} by overlap",
                f"BLEU-4 of prompt and answer; {LOOK_UP}'s speedup over {baseline}, then over each "
                "other method.",
                ["BLEU-4", "prompts", f"over {baseline}", *(f"over {name}" for name in others)],
                rows,
                decimals=2,
            ),
            Chart(
                "overlap-chart",
                f"{LOOK_UP}'s speedup by overlap",
                "A point is a prompt.",
                "points",
                "BLEU-4 of prompt and answer",
                f"speedup over {baseline}",
                [Series(LOOK_UP, found.bleu.tolist(), found.of(LOOK_UP).tolist(), texts=texts)],
            ),
        ],
    )
