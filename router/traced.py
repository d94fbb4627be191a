"""A profile's rows from traced acceptance and measured seconds: the two factors of a table."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router.acceptance import expected_steps
from schemas.profile import ProfileRow, StepRow


@dataclass(frozen=True)
class Costs:
    """One method's seconds for an answer that has a replica to itself.

    first, per_token: of a prefill, and of each prompt token. contexts, steps: seconds of a step at
    these context lengths, between which it is linear.
    """

    first: float
    per_token: float
    contexts: NDArray[np.float64]
    steps: NDArray[np.float64]

    def prefill(self, tokens: int) -> float:
        """Seconds to the first token of a prompt of so many."""
        return self.first + self.per_token * tokens

    def step(self, context: float) -> float:
        """Seconds of a step at so many tokens."""
        return float(np.interp(context, self.contexts, self.steps))


def costs_of(rows: Sequence[ProfileRow], steps: Sequence[StepRow]) -> dict[str, Costs]:
    """By method, from answers that were decoded and the step-time grid at batch 1.

    Prefill is the least-squares line over the prompts' tokens with coefficients of at least 0.
    Raises ValueError for a method without either.
    """
    costs = {}
    for method in dict.fromkeys(row.method for row in rows):
        own = [(row.prompt_tokens, row.prefill_seconds) for row in rows if row.method == method]
        grid = sorted((s.context, s.seconds) for s in steps if s.method == method and s.batch == 1)
        if not grid:
            raise ValueError(f"steps: {method} has no step time at batch 1")
        contexts, seconds = np.asarray(grid, dtype=float).T
        costs[method] = Costs(*_line(np.asarray(own, dtype=float)), contexts, seconds)
    return costs


def traced_row(
    costs: Mapping[str, Costs],
    *,
    prompt_id: str,
    method: str,
    temperature: float,
    prompt_tokens: int,
    answer: Sequence[int],
    kept: Sequence[Sequence[float]],
    looping: bool,
) -> ProfileRow:
    """An answer under a method, in the steps that its trace expects; see
    `router.acceptance.expected_steps`. Target steps above temperature 0 are expectations."""
    cost, tokens = costs[method], len(answer)
    steps = expected_steps(kept, tokens)
    prefill = cost.prefill(prompt_tokens)
    decode = max(0.0, steps - 1.0) * cost.step(prompt_tokens + tokens / 2.0)
    return ProfileRow(
        prompt_id=prompt_id,
        method=method,
        temperature=temperature,
        prompt_tokens=prompt_tokens,
        output_tokens=tokens,
        target_steps=steps,
        seconds=max(prefill + decode, 1e-9),
        prefill_seconds=prefill,
        decode_seconds=decode,
        looping=looping,
        answer=hashlib.sha256(repr(tuple(answer)).encode()).hexdigest()[:12],
    )


def _line(points: NDArray[np.float64]) -> tuple[float, float]:
    """Intercept and slope over points [n, 2], each at least 0."""
    x, y = points.T
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0.0 else 0.0
    slope = max(0.0, slope)
    first = float(y.mean()) - slope * float(x.mean())
    if first >= 0.0:
        return first, slope
    return 0.0, float((x * y).sum() / (x * x).sum())
