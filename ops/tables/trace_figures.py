"""The figures of `specadapt trace`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ops.tables.trace_store import read_meta, read_rows
from router.fit.traced import expected_steps


@dataclass
class _Sums:
    answers: int = 0
    looping: int = 0
    tokens: int = 0
    steps: float = 0.0

    def add(self, other: "_Sums") -> None:
        self.answers += other.answers
        self.looping += other.looping
        self.tokens += other.tokens
        self.steps += other.steps

    def figures(self) -> dict[str, Any]:
        return {
            "answers": self.answers,
            "looping": self.looping,
            "tokens": self.tokens,
            "mat": self.tokens / self.steps,
        }


def summarise(folder: Path) -> dict[str, Any]:
    """Summarise a trace by method and temperature, over all domains and by domain.

    Reports answers, looping answers, tokens, MAT (output tokens per target step, the prefill's
    included) and reliability: accepted shares by the drafter's confidence.
    """
    cells: dict[tuple[str, str, str], _Sums] = {}
    reliability: dict[str, dict[str, Reliability]] = {}
    for row in read_rows(folder):
        tokens = len(row["answer"])
        steps = expected_steps(row["kept"], tokens)
        key = row["method"], f"{row['temperature']:g}", row["domain"]
        cells.setdefault(key, _Sums()).add(_Sums(1, row["looping"], tokens, steps))
        grades = reliability.setdefault(key[0], {}).setdefault(key[1], Reliability())
        for kept, confidences in zip(row["kept"], row["confidences"], strict=True):
            grades.add(kept, confidences)
    domains = sorted({domain for _, _, domain in cells})
    return {
        "methods": _by_method(cells.items()),
        "by_domain": {
            domain: _by_method(cell for cell in cells.items() if cell[0][2] == domain)
            for domain in domains
        },
        "reliability": {
            method: {heat: found for heat, grades in by_heat.items() if (found := grades.figures())}
            for method, by_heat in reliability.items()
        },
        "settings": read_meta(folder).model_dump(mode="json"),
    }


def _by_method(
    cells: Iterable[tuple[tuple[str, str, str], _Sums]],
) -> dict[str, dict[str, dict[str, Any]]]:
    sums: dict[str, dict[str, _Sums]] = {}
    for (method, heat, _), cell in cells:
        sums.setdefault(method, {}).setdefault(heat, _Sums()).add(cell)
    return {
        method: {heat: found.figures() for heat, found in by_heat.items()}
        for method, by_heat in sums.items()
    }


BINS = 10
"""Of confidence, equally wide."""


class Reliability:
    """Counts how often draft tokens were accepted, by the drafter's confidence."""

    def __init__(self) -> None:
        self._sums: NDArray[np.float64] = np.zeros((BINS, 3))

    def add(self, kept: Sequence[float], confidences: Sequence[float]) -> None:
        """Add the levels of one position. A level counts if the level before it was accepted."""
        for (before, now), sure in zip(pairwise((1.0, *kept)), confidences, strict=False):
            if before > 0.0:
                row = self._sums[min(BINS - 1, int(sure * BINS))]
                row += before * np.asarray((1.0, sure, now / before))

    def figures(self) -> list[dict[str, float]]:
        """Return the bins that are not empty: drafts, mean confidence and accepted share."""
        return [
            {"drafts": float(count), "confidence": float(sure / count), "kept": float(kept / count)}
            for count, sure, kept in self._sums
            if count
        ]
