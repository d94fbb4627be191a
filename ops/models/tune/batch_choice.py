"""What `tune-batch` chooses, and the figures behind the choice."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.progress import Progress

from ops.harness.boundary import InputError
from ops.models.tune.batch_planner import BatchCosts, plan_batches
from ops.models.tune.batch_runs import (
    BatchTask,
    Measured,
    compare,
    measure_gammas,
    own_gamma,
    scheduled,
)
from schemas import MethodSpec
from workers.batch_schedule import BatchSchedule
from workers.torch_engine.trees.shape import parse_paths
from workers.vllm_engine.batch_schedule import batch_ranges

GAMMAS = (0, 1, 2, 4, 6)
"""Draft tokens that are compared unless others are asked for."""


def gammas_for(method: MethodSpec, asked: Sequence[int] | None) -> list[int]:
    """The numbers of draft tokens to compare, rising: those asked for or else GAMMAS, as far as the
    method's tree is deep, and the method's own. Raises InputError for a method without a number."""
    if method.drafter == "none":
        raise InputError(f"--methods: {method.name!r} does not draft; name methods that draft")
    depth = fixed_depth(method)
    usual = [gamma for gamma in GAMMAS if depth is None or gamma <= depth]
    return sorted({own_gamma(method), *(usual if asked is None else asked)})


def fixed_depth(method: MethodSpec) -> int | None:
    """Levels of a static tree; None where the stop alone bounds the depth."""
    tree = method.settings.get("tree", {})
    if method.tree != "static":
        return None
    if "paths" in tree:
        return max(map(len, parse_paths(str(tree["paths"]))))
    return len(tree["widths"])  # type: ignore[arg-type]


async def tune(tasks: Sequence[BatchTask], bar: Progress) -> dict[str, dict[str, Any]]:
    """Return each method's schedule and figures.

    Raises ValueError for a method that can follow no schedule.
    """
    for task in tasks:
        _check(task)
    return {task.method.name: await _tune(task, bar) for task in tasks}


async def _tune(task: BatchTask, bar: Progress) -> dict[str, Any]:
    found = await measure_gammas(task, bar)
    costs = found.costs
    schedule = plan_batches(costs)
    spec = scheduled(task.method, schedule, task.method.name)
    own = task.method.model_copy(update={"name": f"{task.method.name}_now"})
    rivals = {"plain": task.plain, "as it is": own, "schedule": spec}
    measured = await compare(task, rivals, bar)
    return {
        "schedule": {"batches": list(schedule.batches), "gammas": list(schedule.gammas)},
        "planned": [schedule.gamma(batch) for batch in task.batches],
        "ranges": [list(r) for r in schedule.ranges(task.setup.engine.max_batch)],
        "entry": {
            "name": spec.name,
            "spec": spec.model_dump(mode="json", exclude_defaults=True),
        },
        "acceptance": [
            {"gamma": gamma, "tokens_per_step": tokens, "steps": found.steps[gamma]}
            for gamma, tokens in sorted(costs.tokens.items())
        ],
        "grid": _grid(found, costs),
        "plain": [
            {"batch": b, "step_ms": 1e3 * median(s), "tokens_per_s": b / median(s)}
            for b, s in sorted(found.plain.items())
        ],
        "measured": {
            label: {str(batch): rate for batch, rate in rates.items()}
            for label, rates in measured.items()
        },
    }


def _check(task: BatchTask) -> None:
    """Raise ValueError if the method cannot draft that many tokens or the engine is too small."""
    method, most = task.method, max(task.gammas)
    depth = fixed_depth(method)
    if depth is not None and most > depth:
        raise InputError(
            f"--gammas: the tree of {method.name!r} has {depth} levels: give numbers up to {depth}"
        )
    if task.slots > task.setup.engine.kv_slots:
        raise InputError(
            f"--batches: {max(task.batches)} sequences take {task.slots} tokens, engine.kv_slots "
            f"is {task.setup.engine.kv_slots}: give smaller batches, or another --config"
        )
    if method.engine == "vllm" and not task.setup.shared:
        batch_ranges(scheduled(method, BatchSchedule((1, 2), (most, 0)), method.name))


def _grid(found: Measured, costs: BatchCosts) -> list[dict[str, float]]:
    """A row per batch size and gamma. spread: of the rounds' seconds, greatest over least."""
    rows = []
    for (batch, gamma), seconds in sorted(found.seconds.items()):
        rate = costs.tokens_per_s(batch, gamma)
        rows.append(
            {
                "batch": batch,
                "gamma": gamma,
                "step_ms": 1e3 * costs.step_seconds(batch, gamma),
                "spread": max(seconds) / min(seconds),
                "tokens_per_s": rate,
                "over_plain": rate * median(found.plain[batch]) / batch,
            }
        )
    return rows
