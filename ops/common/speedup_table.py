"""Assigning methods to clusters from a table of measured speedups."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from router.fit.speedup import harmonic_mean
from schemas.text_files import text_lines

Floats = NDArray[np.float64]
MOST = 1e6
"""What is beyond it, or below its inverse, was not measured; harmonic means of it may overflow."""


class SpeedupTableError(ValueError):
    """The table of speedups cannot be used; the message names the line and the column."""


@dataclass(frozen=True)
class Assignment:
    """The best method of each cluster, with harmonic means of speedups."""

    assignment: tuple[str, ...]
    harmonic_mean: dict[str, float]
    best_single: str
    best_single_speedup: float
    routed: float


def read_speedups(path: Path) -> tuple[tuple[str, ...], Floats]:
    """Return methods and speedups [k, m] of a CSV with the columns cluster and a method each.

    Rows may stand in any order; they are returned by their cluster's number, 0 to k - 1.
    Raises ValueError naming the line.
    """
    [(_, header), *rows] = _cells(path) or [(1, [])]
    if header[:1] != ["cluster"] or len(header) < 2:
        raise SpeedupTableError(f"{path}, line 1: must be `cluster,` and then a method per column")
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise SpeedupTableError(f"{path}, line 1: column {twice[0]!r} is given twice")
    wanted = tuple(header[1:])
    if "" in wanted:
        raise SpeedupTableError(f"{path}, line 1: no column without a name may be there")
    found: dict[int, tuple[int, list[float]]] = {}
    for line, row in rows:
        place = f"{path}, line {line}"
        if len(row) != len(header):
            raise SpeedupTableError(f"{place}: {len(row)} cells for {len(header)} columns")
        cluster = _cluster(row[0], place)
        if cluster in found:
            raise SpeedupTableError(
                f"{place}: cluster {cluster} is given twice, first in line {found[cluster][0]}"
            )
        cells = zip(row[1:], wanted, strict=True)
        found[cluster] = line, [_speedup(cell, name, place) for cell, name in cells]
    if not found:
        raise SpeedupTableError(f"{path}: no clusters below the first line")
    if missing := set(range(len(found))) - found.keys():
        raise SpeedupTableError(
            f"{path}: cluster {min(missing)} is missing; {len(found)} clusters have the numbers 0 "
            f"to {len(found) - 1}"
        )
    return wanted, np.asarray([found[cluster][1] for cluster in range(len(found))])


def _cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return each row of a CSV that is not blank, with its line from 1."""
    reader = csv.reader((line for _, line in text_lines(path)), strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise SpeedupTableError(f"{path}, line {reader.line_num}: not CSV: {error}") from error


def _cluster(cell: str, place: str) -> int:
    if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
        raise SpeedupTableError(f"{place}: cluster must be a number from 0, not {cell[:40]!r}")
    return int(cell)


def _speedup(cell: str, name: str, place: str) -> float:
    try:
        value = float("nan" if "_" in cell else cell)
    except ValueError:
        value = math.nan
    if not 0.0 < value < math.inf:
        raise SpeedupTableError(f"{place}: {name} must be a number above 0, not {cell[:40]!r}")
    if not 1.0 / MOST <= value <= MOST:
        raise SpeedupTableError(f"{place}: {name} is {cell[:40]}: no speedup is so far from 1")
    return value


def assign_speedups(methods: Sequence[str], speedups: Floats) -> Assignment:
    """Assign each cluster its fastest method; speedups [k, m] above 0, clusters count equally."""
    if speedups.ndim != 2 or speedups.shape[1] != len(methods) or not (speedups > 0.0).all():
        raise SpeedupTableError("speedups: one column a method, each speedup above 0")
    means = {name: harmonic_mean(speedups[:, i]) for i, name in enumerate(methods)}
    best = max(means, key=lambda name: means[name])
    return Assignment(
        assignment=tuple(methods[i] for i in speedups.argmax(axis=1)),
        harmonic_mean=means,
        best_single=best,
        best_single_speedup=means[best],
        routed=harmonic_mean(speedups.max(axis=1)),
    )
