"""When requests arrive: by a Poisson process, or as a recorded trace has them."""

import csv
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ops.cli.boundary import InputError
from schemas.json_lines import json_lines

Floats = NDArray[np.float64]


def poisson(count: int, seed: int) -> Floats:
    """Arrival times [count] at a mean rate of one a second; the first is at 0."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: Floats = np.cumsum(gaps) - gaps[0]
    return arrivals


def trace(file: Path, count: int) -> Floats:
    """The first arrivals [count] of a trace, stretched to a mean rate of one a second.

    A .csv has a column TIMESTAMP (date and time), a .jsonl a field timestamp (milliseconds).
    Prompts and lengths of the trace are not used. Raises InputError naming the line.
    """
    if file.suffix not in _READERS:
        raise InputError(f"--arrivals: {file} is neither .csv nor .jsonl")
    times: list[float] = []
    for time in _READERS[file.suffix](file):
        times.append(time)
        if len(times) == count:
            break
    if len(times) < count:
        raise InputError(f"--arrivals: {file} has {len(times)} arrivals, --requests asks for more")
    arrivals = np.sort(np.asarray(times))
    span = arrivals[-1] - arrivals[0]
    if span <= 0.0:
        raise InputError(f"--arrivals: the first {count} arrivals of {file} are at one moment")
    stretched: Floats = (arrivals - arrivals[0]) * ((count - 1) / span)
    return stretched


def _of_csv(file: Path) -> Iterator[float]:
    with file.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines), start=2):
            try:
                yield datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
            except (KeyError, TypeError, ValueError) as error:
                raise InputError(f"{file}, line {number}: no date in TIMESTAMP") from error


def _of_jsonl(file: Path) -> Iterator[float]:
    for number, line in json_lines(file):
        try:
            yield float(json.loads(line)["timestamp"]) / 1e3
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{file}, line {number}: no number in timestamp") from error


_READERS: dict[str, Callable[[Path], Iterator[float]]] = {".csv": _of_csv, ".jsonl": _of_jsonl}
