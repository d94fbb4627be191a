"""Recorded seconds of decoding steps, from a profile's steps.jsonl."""

from collections.abc import Iterable, Sequence

import numpy as np

from schemas.profile import StepRow


class StepTimes:
    """Interpolate step seconds by method, batch size and context length."""

    def __init__(self, rows: Iterable[StepRow]) -> None:
        cells: dict[tuple[str, int, int], list[StepRow]] = {}
        for row in rows:
            cells.setdefault((row.method, row.batch, row.context), []).append(row)
        self._curves: dict[str, dict[int, tuple[list[int], list[float]]]] = {}
        for (method, batch, context), same in sorted(cells.items()):
            curve = self._curves.setdefault(method, {}).setdefault(batch, ([], []))
            curve[0].append(context)
            curve[1].append(_mean(same))

    @property
    def methods(self) -> frozenset[str]:
        """The methods that have step times."""
        return frozenset(self._curves)

    def seconds(self, method: str, batch: float, context: float) -> float:
        """Return a step's seconds. Contexts outside the recorded ones count as the nearest;
        batches beyond the largest continue its slope."""
        curves = self._curves[method]
        batches = list(curves)
        column = [float(np.interp(context, *curve)) for curve in curves.values()]
        if batch > batches[-1] and len(batches) > 1:
            slope = (column[-1] - column[-2]) / (batches[-1] - batches[-2])
            return column[-1] + max(0.0, slope) * (batch - batches[-1])
        return float(np.interp(batch, batches, column))

    def decode_seconds(
        self, method: str, batch: float, prompt_tokens: int, steps: Sequence[Sequence[int]]
    ) -> float:
        """Return the seconds of an answer's decode steps, each shared by `batch` sequences of
        its length. steps: tokens by step, the prefill's first."""
        context, seconds = prompt_tokens + len(steps[0]), 0.0
        for tokens in steps[1:]:
            seconds += self.seconds(method, batch, context)
            context += len(tokens)
        return seconds


def _mean(rows: Sequence[StepRow]) -> float:
    return sum(r.seconds * r.count for r in rows) / sum(r.count for r in rows)
