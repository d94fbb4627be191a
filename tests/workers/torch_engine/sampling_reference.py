"""What a request's parameters mean, one row at a time and with Hugging Face's processors: the
reference that the engine's vectorised code is held against."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import product

import torch
from scipy.stats import chisquare
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from schemas import SamplingParams

Answer = tuple[int, ...]
RARE = 8.0
"""Expected occurrences under which answers are pooled for the chi-square test."""


def processed_row(row: Tensor, prompt: list[int], output: list[int], s: SamplingParams) -> Tensor:
    """Logits [vocab] after least tokens, bias and penalties."""
    row = row.clone()
    if len(output) < s.min_tokens:
        row[list(s.stop_token_ids)] = -torch.inf
    for token, bias in s.logit_bias.items():
        row[token] += bias
    ids = torch.tensor([prompt + output])
    row = RepetitionPenaltyLogitsProcessor(s.repetition_penalty)(ids, row[None])[0]
    for token in set(output):
        row[token] -= s.presence_penalty + s.frequency_penalty * output.count(token)
    return row


def warped_row(row: Tensor, s: SamplingParams) -> Tensor:
    """Probabilities [vocab] of processed logits: temperature, min-p, top-k, top-p."""
    rows = TemperatureLogitsWarper(s.temperature)(None, row[None])
    if s.min_p:
        rows = MinPLogitsWarper(s.min_p)(None, rows)
    if s.top_k:
        rows = TopKLogitsWarper(s.top_k)(None, rows)
    if s.top_p < 1.0:
        rows = TopPLogitsWarper(s.top_p)(None, rows)
    return rows[0].softmax(-1)


def chances(
    logits: Callable[[list[int]], Tensor],
    prompt: list[int],
    tokens: int,
    vocab: int,
    sampling: SamplingParams,
) -> dict[Answer, float]:
    """The probability of every answer of so many tokens; logits(context) gives [vocab]."""
    known: dict[Answer, float] = {(): 1.0}
    for length in range(tokens):
        for answer in product(range(vocab), repeat=length):
            row = logits([*prompt, *answer]).double()
            p = warped_row(processed_row(row, prompt, list(answer), sampling), sampling)
            for token, chance in enumerate(p.tolist()):
                known[*answer, token] = known[answer] * chance
    return {answer: chance for answer, chance in known.items() if len(answer) == tokens}


def p_value(seen: Counter[Answer], expected: Mapping[Answer, float]) -> float:
    """Chi-square of counted answers against their exact chances; 0 where an impossible one came."""
    total = seen.total()
    if any(expected[answer] == 0.0 for answer in seen):
        return 0.0
    common = [answer for answer, chance in expected.items() if chance * total >= RARE]
    counts, wanted = [seen[a] for a in common], [expected[a] * total for a in common]
    rest = total - sum(wanted)
    if rest >= 1.0:
        counts.append(total - sum(counts))
        wanted.append(rest)
    return _chi_square(counts, wanted)


def _chi_square(counts: Sequence[int], wanted: Sequence[float]) -> float:
    scale = sum(counts) / sum(wanted)
    return float(chisquare(counts, [w * scale for w in wanted]).pvalue)
