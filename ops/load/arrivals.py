"""Arrival times of requests: a Poisson process or a recorded trace."""

import csv
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ops.harness.boundary import InputError
from schemas.json_files import json_lines
from schemas.text_files import FileError, text_lines

Floats = NDArray[np.float64]

LATEST = 2.0**53
"""Milliseconds; beyond it neighbouring ones are one float."""


def poisson(count: int, seed: int | tuple[int, ...]) -> Floats:
    """Return arrival times [count] with a mean rate of one per second; the first is 0."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: Floats = np.cumsum(gaps) - gaps[0]
    return arrivals


def trace(file: Path, count: int) -> Floats:
    """Return the first arrivals [count] of a trace, scaled to a mean rate of one per second.

    A .csv has a column TIMESTAMP (date and time), a .jsonl a field timestamp (milliseconds).
    Prompts and lengths of the trace are not used. Raises InputError naming the line.
    """
    times: list[float] = []
    for time in _recorded(file):
        times.append(time)
        if len(times) == count:
            break
    if len(times) < count:
        raise InputError(f"--trace: {file} has {len(times)} arrivals, --requests asks for more")
    arrivals = np.sort(np.asarray(times))
    span = arrivals[-1] - arrivals[0]
    if span <= 0.0:
        raise InputError(f"--trace: the first {count} arrivals of {file} are at the same time")
    stretched: Floats = (arrivals - arrivals[0]) * ((count - 1) / span)
    return stretched


def _recorded(file: Path) -> Iterator[float]:
    """Yield the seconds of all arrivals in the file's order."""
    if file.suffix not in _READERS:
        raise InputError(f"--trace: {file} is neither .csv nor .jsonl")
    return _READERS[file.suffix](file)


def _of_csv(file: Path) -> Iterator[float]:
    rows = csv.DictReader(line for _, line in text_lines(file))
    try:
        for row in rows:
            yield datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
    except (csv.Error, KeyError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise InputError(f"{file}, line {rows.line_num}: TIMESTAMP is not a date") from error


def _of_jsonl(file: Path) -> Iterator[float]:
    for number, row in json_lines(file):
        time = row.get("timestamp") if isinstance(row, dict) else None
        if isinstance(time, bool) or not isinstance(time, int | float) or abs(time) > LATEST:
            raise InputError(f"{file}, line {number}: timestamp is not a number")
        yield time / 1e3


_READERS: dict[str, Callable[[Path], Iterator[float]]] = {".csv": _of_csv, ".jsonl": _of_jsonl}
