"""What `tune-tree` chooses, and the figures behind the choice."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress import Progress

from ops.models.tune.tree_planner import (
    PathRates,
    PlannedTree,
    Ranks,
    StepCost,
    plan_tree,
    replay,
    tokens_per_step,
)
from ops.models.tune.tree_runs import (
    FEW,
    RANKS,
    TreeTask,
    candidate_shapes,
    chain,
    compare,
    decode_all,
    dynamic_candidates,
    record_ranks,
    static,
    step_seconds,
)
from schemas import MethodSpec

FINALISTS = 4
"""Dynamic budgets that are compared on all prompts."""


def tune_static(task: TreeTask, bar: Progress) -> dict[str, Any]:
    """Find the static tree with the highest planned throughput and measure it.

    It is compared with the best chain of the same drafter, the method as configured, and `naive`.
    """
    answers = record_ranks(task, bar)
    shapes = candidate_shapes(answers, task.levels)
    seconds, plain_seconds = step_seconds(task, shapes, bar)
    planned = plan_tree(answers, StepCost(seconds), RANKS)
    best = planned[0]
    tuned = static(task.method, "tuned", best.paths)
    alone = static(task.method, "best_chain", _best_chain(answers, seconds))
    return {
        **_chosen(task, tuned),
        "nodes": len(best.paths),
        "depth": best.depth,
        "expected_acceptance_length": best.tokens_per_step,
        "expected_speedup": best.tokens_per_s * plain_seconds,
        "naive_step_ms": 1e3 * plain_seconds,
        "per_rank_acceptance": _per_rank(best, answers),
        "by_depth": [_planned(tree) for tree in planned],
        "curve": [
            _cell(cell, tokens_per_step(paths, answers), seconds[cell])
            for cell, paths in shapes.items()
        ],
        "measured": compare(
            decode_all(task, [task.method, alone, tuned], task.prompts, bar, "check")
        ),
    }


def tune_dynamic(task: TreeTask, bar: Progress) -> dict[str, Any]:
    """Nodes, k and depth of EAGLE-2's tree that emitted the most tokens a second."""
    candidates = {spec.name: spec for spec in dynamic_candidates(task.method)}
    first = compare(decode_all(task, candidates.values(), task.prompts[:FEW], bar, "budgets"))
    ranked = sorted(candidates, key=lambda name: -first[name]["tokens_per_s"])
    finalists = [candidates[name] for name in ranked[:FINALISTS]]
    measured = compare(decode_all(task, [task.method, *finalists], task.prompts, bar, "check"))
    best = max(finalists, key=lambda spec: measured[spec.name]["speedup_vs_naive"])
    return {
        **_chosen(task, best),
        "nodes": best.settings["tree"]["nodes"],
        "depth": best.settings["stop"]["gamma"],
        "expected_acceptance_length": measured[best.name]["tokens_per_step"],
        "expected_speedup": measured[best.name]["speedup_vs_naive"],
        "curve": [{"budget": name, **first[name]} for name in ranked],
        "measured": measured,
    }


def _chosen(task: TreeTask, spec: MethodSpec) -> dict[str, Any]:
    """The spec as an entry of the configuration's `methods`, under a name of its own."""
    name = f"{task.method.name}_tuned"
    fields = spec.model_copy(update={"name": name}).model_dump(mode="json", exclude_defaults=True)
    return {"method": task.method.name, "entry": {"name": name, "spec": fields}}


def _best_chain(
    answers: Sequence[Ranks], seconds: Mapping[tuple[int, int], float]
) -> list[tuple[int, ...]]:
    depths = [depth for depth, nodes in seconds if depth == nodes]
    best = max(depths, key=lambda d: tokens_per_step(chain(d), answers) / seconds[d, d])
    return chain(best)


def _per_rank(tree: PlannedTree, answers: Sequence[Ranks]) -> list[list[float]]:
    """By depth and rank, at the positions where this tree's steps begin."""
    roots = replay(tree.paths, answers)
    begun = [a[at].tolist() for a, own in zip(answers, roots, strict=True) for at in own]
    return PathRates(begun, RANKS).per_rank()


def _planned(tree: PlannedTree) -> dict[str, float]:
    return _cell((tree.depth, len(tree.paths)), tree.tokens_per_step, tree.seconds)


def _cell(cell: tuple[int, int], tokens: float, seconds: float) -> dict[str, float]:
    return {
        "depth": cell[0],
        "nodes": cell[1],
        "step_ms": 1e3 * seconds,
        "tokens_per_step": tokens,
        "tokens_per_s": tokens / seconds,
    }
