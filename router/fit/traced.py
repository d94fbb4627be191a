"""A profile's rows from traced acceptance and measured seconds."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.profile import ProfileRow, StepRow


def expected_steps(kept: Sequence[Sequence[float]], tokens: int) -> float:
    """Return the expected target steps of an answer, the prefill included.

    kept: per position from the second token on, the probabilities that the first, the first two,
    ... draft tokens are accepted. A step that accepts a draft tokens emits one more, and the next
    step is at the position behind them. Raises ValueError unless there are tokens - 1 positions.
    """
    if len(kept) != max(0, tokens - 1):
        raise ValueError(f"{len(kept)} positions for an answer of {tokens} tokens")
    if tokens == 0:
        return 0.0
    after = [0.0] * (tokens + 1)  # steps from position i on
    for position in range(tokens - 1, 0, -1):
        reached = [1.0, *kept[position - 1], 0.0]
        after[position] = 1.0 + sum(
            (reached[a] - reached[a + 1]) * after[min(position + a + 1, tokens)]
            for a in range(len(reached) - 1)
        )
    return 1.0 + after[1] if tokens > 1 else 1.0


@dataclass(frozen=True)
class Costs:
    """One method's seconds for an answer that is alone on its replica.

    first, per_token: prefill seconds, constant and per prompt token. contexts, steps: seconds per
    step at these context lengths, linear in between.
    """

    first: float
    per_token: float
    contexts: NDArray[np.float64]
    steps: NDArray[np.float64]

    def prefill(self, tokens: int) -> float:
        """Return seconds to the first token of a prompt."""
        return self.first + self.per_token * tokens

    def step(self, context: float) -> float:
        """Return seconds per step at a context length in tokens."""
        return float(np.interp(context, self.contexts, self.steps))


def costs_of(rows: Sequence[ProfileRow], steps: Sequence[StepRow]) -> dict[str, Costs]:
    """Return costs by method, from decoded answers and the step-time grid at batch 1.

    Prefill is the least-squares line over prompt tokens with coefficients of at least 0. Raises
    ValueError for a method without a step time.
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


@dataclass(frozen=True)
class TracedAnswer:
    """An answer under a method, as a trace has it.

    answer: its token ids. kept: per position from the second token on, the probabilities that the
    first, the first two, ... draft tokens are accepted (`expected_steps`).
    """

    prompt_id: str
    method: str
    temperature: float
    prompt_tokens: int
    answer: Sequence[int]
    kept: Sequence[Sequence[float]]
    looping: bool


def traced_row(costs: Mapping[str, Costs], traced: TracedAnswer) -> ProfileRow:
    """Return a profile's row for a traced answer.

    It takes the target steps that the trace expects; above temperature 0 they are expectations.
    """
    cost, tokens = costs[traced.method], len(traced.answer)
    steps = expected_steps(traced.kept, tokens)
    prefill = cost.prefill(traced.prompt_tokens)
    decode = max(0.0, steps - 1.0) * cost.step(traced.prompt_tokens + tokens / 2.0)
    return ProfileRow(
        prompt_id=traced.prompt_id,
        method=traced.method,
        temperature=traced.temperature,
        prompt_tokens=traced.prompt_tokens,
        output_tokens=tokens,
        target_steps=steps,
        seconds=max(prefill + decode, 1e-9),
        prefill_seconds=prefill,
        decode_seconds=decode,
        looping=traced.looping,
        answer=hashlib.sha256(repr(tuple(traced.answer)).encode()).hexdigest()[:12],
    )


def _line(points: NDArray[np.float64]) -> tuple[float, float]:
    """Return the intercept and slope, each at least 0, of a line through points [n, 2]."""
    x, y = points.T
    spread = float(((x - x.mean()) ** 2).sum())
    slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread if spread > 0.0 else 0.0
    slope = max(0.0, slope)
    first = float(y.mean()) - slope * float(x.mean())
    if first >= 0.0:
        return first, slope
    return 0.0, float((x * y).sum() / (x * x).sum())
