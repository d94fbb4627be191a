"""Bounds on the speedup of speculation: what steps cost, and which drafts would be accepted."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ops.common.boundary import InputError
from ops.routing_tables.traced import TracedAnswer, steps
from router.fit.speedup import BASELINE, MIN_TOKENS, harmonic_mean, paired_bootstrap_ci

if TYPE_CHECKING:
    from ops.common.decoding import EncodedPrompt
    from ops.common.settings import Setup
    from workers.torch_engine.models.model import Model

Floats = NDArray[np.float64]

ROWS = (1, 2, 3, 4, 5, 6, 8, 11, 17)
"""Tokens of the target's forwards that are timed; between two it is linear."""
CONTEXT = 256
"""Tokens before those of a timed forward."""
ROUNDS = 41
TIMED = 8
"""Prompts whose steps are timed."""
BOUNDS = ("best_of_prompt", "oracle_combine")


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of steps with one request at a time.

    whole: of each method's step. drafting: the drafter's part. rows, forwards [n]: the target's
    forward by its tokens.
    """

    whole: Mapping[str, float]
    drafting: Mapping[str, float]
    rows: Floats
    forwards: Floats

    def of(self, drafter: str, length: int, levels: int) -> float:
        """Return the seconds of a step that drafts and verifies exactly `length` tokens.

        levels: the most tokens that the drafter drafts. Drafting fewer costs in proportion, which
        flatters drafters that draft all at once.
        """
        if not length:
            return self.whole[BASELINE]
        more = np.interp(length + 1, self.rows, self.forwards) - self.forwards[0]
        return self.whole[BASELINE] + float(more) + self.drafting[drafter] * length / levels


async def measure(setup: "Setup", items: "Sequence[EncodedPrompt]", max_tokens: int) -> StepSeconds:
    """Time steps of every method on some of the prompts, and the target's forwards."""
    import torch

    from ops.common.decoding import decode, engines_of
    from schemas import SamplingParams
    from workers.bundle import load_bundle
    from workers.torch_engine.models.model import load_target

    bundle = load_bundle(setup.bundle)
    spent = {name: np.zeros(3) for name in setup.names}
    with engines_of(setup, bundle, "trace") as engines:
        for at, item in enumerate([items[0], *items[:: max(1, len(items) // TIMED)][:TIMED]]):
            for name in setup.names:
                sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens if at else 16)
                answer = await decode(engines, f"trace-{name}-{at}", name, item.token_ids, sampling)
                stats = answer.stats
                if at:  # the first response warms up
                    taken = stats.target_steps - 1, stats.decode_seconds, stats.draft_seconds
                    spent[name] += taken
    if not all(steps for steps, _, _ in spent.values()):
        raise InputError("--max-tokens: the timed answers have one token; allow more")
    model = load_target(bundle.part("target"), setup.engine.dtype, torch.device("cpu"))
    with torch.inference_mode():
        medians = _forward_seconds(model)
    return StepSeconds(
        whole={name: float(whole / steps) for name, (steps, whole, _) in spent.items()},
        drafting={name: float(draft / steps) for name, (steps, _, draft) in spent.items()},
        rows=np.asarray(ROWS, dtype=float),
        forwards=np.maximum.accumulate(medians),
    )


def _forward_seconds(model: "Model") -> Floats:
    """Return the median seconds of forwards of ROWS tokens each, after CONTEXT tokens.

    They take turns, so noise affects all.
    """
    from workers.torch_engine.models.layout import Span

    def forward(tokens: int) -> Callable[[], object]:
        pool = model.make_pool(1, CONTEXT + tokens)
        lease = pool.acquire()
        lease.length = CONTEXT
        spans = [Span(lease, list(range(1, tokens + 1)))]
        return lambda: model.forward(model.lay_out(spans, pool), pool)

    forwards = [forward(rows) for rows in ROWS]
    seconds = np.empty((ROUNDS, len(forwards)))
    for turn in seconds:
        for row, run in enumerate(forwards):
            start = time.perf_counter()
            run()
            turn[row] = time.perf_counter() - start
    medians: Floats = np.median(seconds, axis=0)
    return medians


def oracle_seconds(
    accepted: Mapping[str, Sequence[int]], seconds: StepSeconds, levels: Mapping[str, int]
) -> float:
    """Return the seconds when the drafter with most accepted tokens drafts just these at each step.

    Ties go to the cheapest. With several drafters this is Oracle_Combine, with one the oracle
    length (Liu et al., section 8). Raises ValueError for responses of different lengths.
    """
    [tokens] = {len(own) for own in accepted.values()}
    position, taken = 0, 0.0
    while position < tokens:
        most = min(max(own[position] for own in accepted.values()), tokens - position - 1)
        longest = [name for name, own in accepted.items() if own[position] >= most]
        taken += min(seconds.of(name, most, levels[name]) for name in longest)
        position += most + 1
    return taken


def bounds(answers: Sequence[TracedAnswer], seconds: StepSeconds, seed: int) -> dict[str, Any]:
    """Return speedups over plain decoding after the first token, over answers that count for speed.

    Harmonic means, each domain counting alike: every drafter as it is (fixed), each drafting
    exactly the accepted tokens (oracle_length), the best drafter of each prompt, and of each step
    (oracle_combine). Raises InputError without answers.
    """
    answers = [answer for answer in answers if len(answer.answer) >= MIN_TOKENS]
    if not answers:
        raise InputError(f"--bounds: no answer has {MIN_TOKENS} tokens; raise --max-tokens")
    names = list(answers[0].accepted)
    levels = {n: max(1, *(max(answer.accepted[n]) for answer in answers)) for n in names}
    rows = [_speedups(answer, seconds, levels) for answer in answers]
    found = {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
    counts = Counter(answer.domain for answer in answers)
    weights = np.asarray([1.0 / counts[answer.domain] for answer in answers])
    means = {name: harmonic_mean(values, weights) for name, values in found.items()}
    single = max(names, key=lambda name: means[name])
    combined, best = found["oracle_combine"], found[single]
    return {
        "answers": len(answers),
        "fixed": {name: means[name] for name in names},
        "oracle_length": {name: means[_length(name)] for name in names},
        "best_single": {"name": single, "speedup": means[single]},
        **{name: means[name] for name in BOUNDS},
        "combine_over_best_single": means["oracle_combine"] / means[single],
        "combine_over_best_single_ci95": [*paired_bootstrap_ci(combined, best, seed, weights)],
        "by_domain": {
            domain: {
                name: harmonic_mean(found[name][[answer.domain == domain for answer in answers]])
                for name in (*names, *BOUNDS)
            }
            for domain in sorted(counts)
        },
        "step_ms": {name: 1e3 * whole for name, whole in seconds.whole.items()},
        "drafting_ms": {name: 1e3 * draft for name, draft in seconds.drafting.items()},
        "forward_ms": {
            f"{rows:g}": 1e3 * taken
            for rows, taken in zip(seconds.rows, seconds.forwards.tolist(), strict=True)
        },
    }


def _length(name: str) -> str:
    return f"{name}, oracle length"


def _speedups(
    answer: TracedAnswer, seconds: StepSeconds, levels: Mapping[str, int]
) -> dict[str, float]:
    plain = seconds.whole[BASELINE] * (len(answer.answer) - 1)
    accepted = answer.accepted
    taken = {name: seconds.whole[name] * steps(own) for name, own in accepted.items()}
    taken["best_of_prompt"] = min(plain, *taken.values())
    for name, own in accepted.items():
        taken[_length(name)] = oracle_seconds({name: own}, seconds, levels)
    taken["oracle_combine"] = oracle_seconds(accepted, seconds, levels)
    return {name: plain / found for name, found in taken.items()}
