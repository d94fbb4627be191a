"""What a soak says of the service. docs/measuring.md has the definitions."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ops.harness.processes import Process
from ops.load.soak.samples import Sample

SHARE = 0.1
"""Share of the time after the warm-up that the first and the last part have."""


def figures_of(
    samples: Sequence[Sample], warm_up: float, idle: tuple[Sample, Sample]
) -> dict[str, Any]:
    """Return what processes hold in the first and last tenth after `warm_up` seconds.

    By process and in sum. idle: samples before and after the load. Raises ValueError if fewer than
    two samples follow the warm-up.
    """
    after = [sample for sample in samples if sample.at >= warm_up]
    if len(after) < 2:
        raise ValueError(f"{len(after)} samples after a warm-up of {warm_up:g} s; at least 2")
    count = max(1, round(SHARE * len(after)))
    first, last = after[:count], after[-count:]
    stayed = sorted(_all_along(after), key=lambda process: (process.role, process.replica))
    rows = [_row(process, first, last) for process in stayed]
    memory = (sum(r["memory_mb"][0] for r in rows), sum(r["memory_mb"][1] for r in rows))
    return {
        "processes": rows,
        "memory_mb": memory,
        "growth": memory[1] / memory[0] - 1.0,
        "replaced": len({p for sample in samples for p in sample.held}) - len(stayed),
        "idle": {
            "tasks": tuple(dict(sample.tasks) for sample in idle),
            "processes": tuple(Counter(p.role for p in sample.held) for sample in idle),
            "handles": tuple(sum(held.handles for held in s.held.values()) for s in idle),
            "threads": tuple(sum(held.threads for held in s.held.values()) for s in idle),
        },
        "timeline": [_moment(sample) for sample in samples],
    }


def _all_along(samples: Sequence[Sample]) -> set[Process]:
    return set.intersection(*(set(sample.held) for sample in samples))


def _row(process: Process, first: Sequence[Sample], last: Sequence[Sample]) -> dict[str, Any]:
    memory = tuple(fmean(s.held[process].memory_mb for s in part) for part in (first, last))
    handles = tuple(fmean(s.held[process].handles for s in part) for part in (first, last))
    return {
        "role": process.role,
        "memory_mb": memory,
        "growth": memory[1] / memory[0] - 1.0,
        "handles": handles,
    }


def _moment(sample: Sample) -> dict[str, Any]:
    memory: defaultdict[str, float] = defaultdict(float)
    for process, held in sample.held.items():
        memory[process.role] += held.memory_mb
    return {"at": round(sample.at, 1), "memory_mb": {r: round(m, 1) for r, m in memory.items()}}
