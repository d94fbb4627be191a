"""Rules replayed on recorded answers: tuned on half of them, judged on the other half."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ops.cli.boundary import InputError
from ops.rules.costs import Costs
from ops.rules.ours import Ours
from ops.rules.rules import (
    AdaEdl,
    Fixed,
    Rule,
    chain,
    dyspec,
    eagle2,
    hindsight,
    opt_tree,
    rank_rates,
    sequoia,
    specdec,
    static,
    trusting,
)
from ops.rules.wide_tree import WideTree
from router.speedup import harmonic_mean, paired_bootstrap_ci
from schemas import MethodSpec
from workers.batch_schedule import schedule_of
from workers.drafting.confidence import Confidence
from workers.torch_engine.drafters.learned import DEEPER
from workers.torch_engine.trees.shape import parse_paths

OURS, BOUND = "ours", "known beforehand"
MOST_NODES = 16
"""Nodes of a dynamic tree at most; as many of a level are recorded with their children."""
BUDGETS = (2, 3, 4, 5, 6, 8, 11, MOST_NODES)
BRANCHES = (1, 2, 3, 4)
DELTAS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
THRESHOLDS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
RISKS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Recorded:
    """A prompt's answer as its drafter would have drafted it: a tree for each position from the
    second token on."""

    prompt_id: str
    domain: str
    trees: Sequence[WideTree]


@dataclass
class Run:
    """A rule on one answer: tokens after the first one, and what they took."""

    tokens: int
    steps: int = 0
    nodes: int = 0
    levels: int = 0
    accepted: int = 0
    expected: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """A rule with its settings, to be made anew for every trial."""

    settings: Mapping[str, Any]
    make: Callable[[], Rule]


def replay(answers: Iterable[Recorded], rule: Rule, costs: Costs) -> list[Run]:
    """Decode the answers one after the other with the rule's drafts."""
    runs = []
    for answer in answers:
        rule.begin()
        run, at = Run(len(answer.trees)), 0
        while at < len(answer.trees):
            tree = answer.trees[at]
            draft = rule.draft(tree)
            accepted = tree.accepted(draft.nodes)
            rule.saw(tree, accepted)
            run.steps += 1
            run.nodes += draft.size
            run.levels += len(draft.reads)
            run.accepted += accepted
            run.expected += draft.expected
            run.seconds += costs.seconds(draft.reads, draft.size)
            at += accepted + 1
        runs.append(run)
    return runs


def candidates(
    seen: Sequence[Recorded], costs: Costs, method: MethodSpec, depth: int
) -> dict[str, list[Candidate]]:
    """By rule the settings that are tried. seen: answers that may be learned from. depth: levels
    that were recorded."""
    trees = [tree for answer in seen for tree in answer.trees]
    confidence = Confidence()
    trusting(confidence, trees)
    rates = rank_rates(trees, 1 + max((max(tree.ranks, default=0) for tree in trees), default=0))
    shape, promised = sequoia(rates, MOST_NODES, depth, costs.seconds)
    depths = range(1, depth + 1)

    def fixed(draft: Callable[..., Any], **settings: Any) -> Candidate:
        return Candidate(settings, lambda: Fixed(lambda tree: draft(tree, **settings)))

    return {
        "chain of 3": [fixed(chain, most=3)],
        "chain": [fixed(chain, most=length) for length in depths],
        "the method's tree": [own_tree(method)],
        "EAGLE-2": [
            fixed(eagle2, nodes=n, k=k, depth=d)
            for n, k, d in product(BUDGETS, BRANCHES, depths)
            if k <= n
        ],
        "OPT-Tree": [
            fixed(opt_tree, nodes=n, delta=delta, depth=d)
            for n, delta, d in product(BUDGETS, DELTAS, depths)
        ],
        "Sequoia": [
            Candidate(
                {"nodes": len(shape), "depth": max(map(len, shape), default=0)},
                lambda: Fixed(lambda tree: static(tree, shape, promised)),
            )
        ],
        "DySpec": [fixed(dyspec, nodes=n, depth=d) for n, d in product(BUDGETS, depths)],
        "AdaEDL": [
            Candidate({"threshold": start, "most": most}, lambda s=start, m=most: AdaEdl(s, m))
            for start, most in product(THRESHOLDS, depths)
        ],
        "SpecDec++, calibrated": [
            Candidate(
                {"risk": risk, "most": most},
                lambda r=risk, m=most: Fixed(lambda tree: specdec(tree, r, confidence, m)),
            )
            for risk, most in product(RISKS, depths)
        ],
        OURS: [
            Candidate({"most": most}, lambda m=most: Ours(costs.seconds, m))
            for most in (min(schedule_of(method).gamma(1) + DEEPER, depth),)
        ],
        BOUND: [fixed(hindsight, most=depth)],
    }


def own_tree(method: MethodSpec) -> Candidate:
    """The method's own tree and depth."""
    settings = method.settings.get("tree", {})
    depth = schedule_of(method).gamma(1)
    if method.tree == "eagle2":
        found = {"nodes": int(settings["nodes"]), "k": int(settings["k"]), "depth": depth}
        return Candidate(found, lambda: Fixed(lambda tree: eagle2(tree, **found)))
    if method.tree == "static" and "paths" in settings:
        paths = [path for path in parse_paths(str(settings["paths"])) if len(path) <= depth]
        return Candidate(settings, lambda: Fixed(lambda tree: static(tree, paths)))
    return Candidate({"most": depth}, lambda: Fixed(lambda tree: chain(tree, depth)))


def compare(
    answers: Sequence[Recorded], costs: Costs, method: MethodSpec, depth: int, seed: int
) -> dict[str, Any]:
    """The figures of every rule on every other answer of each domain, with the settings that were
    the fastest on the answers between. Raises InputError where no domain has two answers."""
    seen, judged = halves(answers)
    if not judged:
        raise InputError("--limit: no domain has two answers, to tune on and to judge by")
    plain, found, settings = costs.plain, dict[str, list[Run]](), {}
    for name, tried in candidates(seen, costs, method, depth).items():
        best, rule = tried[0], tried[0].make()
        fastest = 0.0
        for candidate in tried:
            trial = candidate.make()
            rate = harmonic_mean(speedups(replay(seen, trial, costs), plain))
            if rate > fastest:
                best, rule, fastest = candidate, trial, rate
        found[name], settings[name] = replay(judged, rule, costs), dict(best.settings)
    ours = speedups(found[OURS], plain)
    domains = sorted({answer.domain for answer in judged})
    members = {d: [i for i, a in enumerate(judged) if a.domain == d] for d in domains}
    return {
        "rules": {
            name: {"settings": settings[name], **figures(runs, plain)}
            | against(speedups(runs, plain), ours, members, seed)
            for name, runs in found.items()
        },
        "answers": {"tuned_on": len(seen), "judged": len(judged)},
    }


def halves(answers: Sequence[Recorded]) -> tuple[list[Recorded], list[Recorded]]:
    """The answers to learn from and those to judge by: of each domain in turn."""
    by_domain: dict[str, list[Recorded]] = {}
    for answer in answers:
        by_domain.setdefault(answer.domain, []).append(answer)
    return (
        [answer for own in by_domain.values() for answer in own[::2]],
        [answer for own in by_domain.values() for answer in own[1::2]],
    )


def speedups(runs: Iterable[Run], plain: float) -> list[float]:
    """Of each answer over plain decoding's step of so many seconds."""
    return [run.tokens * plain / run.seconds for run in runs]


def figures(runs: Sequence[Run], plain: float) -> dict[str, float]:
    """Over all answers, by step, and the harmonic mean of their speedups."""
    steps = sum(run.steps for run in runs)
    return {
        "speedup": harmonic_mean(speedups(runs, plain)),
        "tokens_per_step": sum(run.tokens for run in runs) / steps,
        "expected_accepted": sum(run.expected for run in runs) / steps,
        "accepted": sum(run.accepted for run in runs) / steps,
        "nodes": sum(run.nodes for run in runs) / steps,
        "levels": sum(run.levels for run in runs) / steps,
        "step_ms": 1e3 * sum(run.seconds for run in runs) / steps,
    }


def against(
    values: Sequence[float],
    ours: Sequence[float],
    members: Mapping[str, Sequence[int]],
    seed: int,
) -> dict[str, Any]:
    """Speedups by domain, and over our rule's: all together, and by domain."""

    def ratio(among: Sequence[int]) -> dict[str, Any]:
        mine, theirs = [values[i] for i in among], [ours[i] for i in among]
        low, high = paired_bootstrap_ci(mine, theirs, seed)
        return {"ratio": harmonic_mean(mine) / harmonic_mean(theirs), "ci95": [low, high]}

    by_domain = {
        domain: {"speedup": harmonic_mean([values[i] for i in own])} | ratio(own)
        for domain, own in members.items()
    }
    return {"over_ours": ratio(range(len(values))), "by_domain": by_domain}
