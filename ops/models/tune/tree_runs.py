"""The runs of `tune-tree`: ranks, step costs, and what was chosen against its rivals."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any

from rich.progress import Progress

from ops.harness.boundary import InputError
from ops.harness.decoding import EncodedPrompt
from ops.harness.stepping import Stepper, Steps
from ops.models.tune.rank_probe import RankProbe
from ops.models.tune.tree_planner import PathRates, Ranks, best_nodes
from router.fit.speedup import BASELINE, harmonic_mean
from schemas import EngineConfig, MethodSpec, SamplingParams
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.models.kv_pool import TREE_ROOM
from workers.torch_engine.trees.shape import RankPath, format_path

RANKS = 8
"""Children considered under one node."""
SIZES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, TREE_ROOM - 1)
"""Numbers of nodes of the trees that are timed."""
FEW = 4
"""Prompts on which many trees are timed."""
DYNAMIC_NODES = (4, 8, 12, 16, 24)
DYNAMIC_K = (2, 3, 4, 6)


@dataclass(frozen=True)
class TreeTask:
    """A method, and the prompts and settings its tree is fitted to."""

    bundle: Bundle
    engine: EngineConfig
    method: MethodSpec
    prompts: Sequence[EncodedPrompt]
    max_tokens: int
    temperature: float
    levels: int
    seed: int

    def sampling(self, max_tokens: int) -> SamplingParams:
        """Parameters of one answer."""
        return SamplingParams(temperature=self.temperature, max_tokens=max_tokens)

    def stepper(self, methods: Iterable[MethodSpec]) -> Stepper:
        """The bundle's models under these methods."""
        return Stepper([get_method(BASELINE), *methods], self.bundle, self.engine)


def with_tree(method: MethodSpec, name: str, tree: str, levels: int, **settings: Any) -> MethodSpec:
    """The method with another tree of these settings, drafted `levels` deep."""
    if method.tree == "chain":
        # its verifier may take chains only
        method = method.model_copy(update={"verifier": "one_hot", "lossless": True})
    kept = {k: v for k, v in method.settings.get("tree", {}).items() if k == "sample"}
    shape: dict[str, Any] = (kept if tree == "static" else {}) | settings
    changed: dict[str, Any] = {"tree": shape, "stop": {"gamma": levels}}
    settled: dict[str, Any] = dict(method.settings) | changed
    update = {"name": name, "tree": tree, "stop": "fixed", "settings": settled}
    return method.model_copy(update=update)


def static(method: MethodSpec, name: str, paths: Sequence[RankPath]) -> MethodSpec:
    """Return the method with a static tree of these nodes."""
    named = " ".join(map(format_path, sorted(paths, key=lambda path: (len(path), path))))
    return with_tree(method, name, "static", max(map(len, paths)), paths=named)


def record_ranks(task: TreeTask, bar: Progress) -> list[Ranks]:
    """Decode prompts plainly and rank the answers' tokens by the method's drafter.

    Raises InputError for a drafter that cannot fill trees.
    """
    stepper = task.stepper([task.method])
    method = stepper.models.methods[task.method.name]
    if not method.plan.drafter.has_distribution:
        raise InputError(
            f"--method: the drafter of {task.method.name!r} ({task.method.drafter}) fills no "
            "trees; choose a method that drafts with a model or heads"
        )
    naive = stepper.models.methods[BASELINE]
    probe = RankProbe(method.plan.drafter, task.levels, beyond=RANKS)
    method.plan, method.verifier = probe.plan, probe
    known, progress = list[Ranks](), bar.add_task("ranks", total=len(task.prompts))
    for item in task.prompts:
        answer, _ = stepper.decode(naive, item.token_ids, task.sampling(task.max_tokens))
        ranks = probe.begin(answer)
        stepper.decode(method, item.token_ids, task.sampling(len(answer)))
        known.append(ranks)
        bar.advance(progress)
    return known


def candidate_shapes(
    answers: Sequence[Ranks], levels: int
) -> dict[tuple[int, int], list[RankPath]]:
    """By depth and nodes the tree that the ranks suggest, with the best path down to its depth."""
    rates = PathRates((row for ranks in answers for row in ranks.tolist()), RANKS)
    shapes = {}
    for depth, size in product(range(1, levels + 1), SIZES):
        if size >= depth:
            spine = chain(depth)
            others = [path for path, _ in best_nodes(rates.children, size, depth) if any(path)]
            paths = [*spine, *others[: size - depth]]
            shapes[depth, len(paths)] = paths
    return shapes


def chain(depth: int) -> list[RankPath]:
    """The best path alone."""
    return [(0,) * length for length in range(1, depth + 1)]


def step_seconds(
    task: TreeTask, shapes: Mapping[tuple[int, int], Sequence[RankPath]], bar: Progress
) -> tuple[dict[tuple[int, int], float], float]:
    """Median seconds of a step with each of these trees, and of a plain one."""
    specs = {
        cell: static(task.method, f"tree_{number}", paths)
        for number, (cell, paths) in enumerate(shapes.items())
    }
    measured = decode_all(task, specs.values(), task.prompts[:FEW], bar, "step costs")
    seconds = {
        name: median(second for steps in answers for second in steps.seconds)
        for name, answers in measured.items()
    }
    return {cell: seconds[spec.name] for cell, spec in specs.items()}, seconds[BASELINE]


def decode_all(
    task: TreeTask,
    methods: Iterable[MethodSpec],
    prompts: Sequence[EncodedPrompt],
    bar: Progress,
    title: str,
) -> dict[str, list[Steps]]:
    """Steps by method, one entry a prompt; `naive` among them. Each prompt has an
    order of its own."""
    stepper = task.stepper(methods)
    names = list(stepper.models.methods)
    order, progress = random.Random(task.seed), bar.add_task(title, total=len(prompts))
    found: dict[str, list[Steps]] = {name: [] for name in names}
    for item in prompts:
        for name in order.sample(names, len(names)):
            method = stepper.models.methods[name]
            _, steps = stepper.decode(method, item.token_ids, task.sampling(task.max_tokens))
            found[name].append(steps)
        bar.advance(progress)
    return found


def compare(measured: dict[str, list[Steps]]) -> dict[str, dict[str, float]]:
    """Return, by method, tokens per step, tokens/s of decoding, and the speedup over `naive`.

    The speedup is a harmonic mean of paired speedups. Answers that end within a round are left out.
    Raises InputError if none is longer.
    """
    baseline = measured[BASELINE]
    everyone = zip(*measured.values(), strict=True)
    counted = [i for i, steps in enumerate(everyone) if all(own.seconds for own in steps)]
    if not counted:
        raise InputError("--max-tokens: all answers end at once; allow more tokens")
    figures = {}
    for name, answers in measured.items():
        answers = [answers[i] for i in counted]
        tokens = sum(sum(steps.tokens) for steps in answers)
        speedups = [
            _rate(steps) / _rate(baseline[i]) for i, steps in zip(counted, answers, strict=True)
        ]
        figures[name] = {
            "tokens_per_step": sum(s.emitted for s in answers) / sum(s.count for s in answers),
            "tokens_per_s": tokens / sum(sum(steps.seconds) for steps in answers),
            "speedup_vs_naive": harmonic_mean(speedups),
        }
    return figures


def dynamic_candidates(method: MethodSpec) -> list[MethodSpec]:
    """EAGLE-2's budgets to be compared, at the method's own depth and its neighbours."""
    own = int(method.settings.get("stop", {}).get("gamma", 4))  # type: ignore[arg-type]
    return [
        with_tree(method, f"n{n}_k{k}_d{depth}", "eagle2", depth, nodes=n, k=k)
        for n, k, depth in product(DYNAMIC_NODES, DYNAMIC_K, (max(1, own - 1), own, own + 1))
        if k <= n
    ]


def _rate(steps: Steps) -> float:
    return sum(steps.tokens) / sum(steps.seconds)
