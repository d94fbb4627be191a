"""The figures and tables of `bench load`."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group

from ops.harness.output import cell, table
from ops.load.arrivals import Floats
from ops.load.policies import ONLY, ROUTED
from ops.load.runs import Outcome

BLOCKS = 20
"""Number of blocks of consecutive requests in the bootstrap."""

Outcomes = Sequence[Outcome | None]


def figures_at(
    share: float, rate: float, arrivals: Floats, runs: Mapping[str, Outcomes], seed: int
) -> dict[str, Any]:
    """One load's figures: every policy, and the routed one over each of its rivals.

    `rate`: requests offered a second. The best single method is the one that did best here.
    """
    policies = {
        name: policy_figures(outcomes, float(arrivals[0])) for name, outcomes in runs.items()
    }
    singles = [name for name in policies if name.startswith(ONLY)]
    best = min(singles, key=lambda n: (policies[n]["refused"], policies[n]["mean_latency_s"]))
    others = [name for name in policies if name != ROUTED and name not in singles]
    rivals = {"best_single": best, **dict(zip(others, others, strict=True))}
    return {
        "share_of_capacity": share,
        "offered_requests_per_s": rate,
        "policies": policies,
        "best_single": best.removeprefix(ONLY),
        "routed_over": {
            label: versus(runs[ROUTED], runs[name], seed) for label, name in rivals.items()
        },
    }


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """What people read: per load a line a policy, and what routing is worth there."""
    columns = ["policy", "mean s", "p95 s", "TTFT s", "outside s", "refused", "methods"]
    how = "simulated" if figures["simulated"] else "replayed on Ray Serve"
    for load in figures["loads"]:
        title = (
            f"{load['share_of_capacity']:.2f} of capacity: "
            f"{load['offered_requests_per_s']:.2f} requests/s ({how})"
        )
        rows = [[name, *_line(policy)] for name, policy in load["policies"].items()]
        yield table(title, columns, rows)
    yield table(
        "Latency of the rival over that of routed, with its 95% interval",
        ["of capacity", "rival", "mean", "p95"],
        [
            [cell(load["share_of_capacity"]), _named(rival, load), *map(interval, ratios.values())]
            for load in figures["loads"]
            for rival, ratios in load["routed_over"].items()
        ],
    )


def ratio_ci(
    figure: Callable[[Floats], float],
    ours: Floats,
    theirs: Floats,
    seed: int,
    resamples: int = 2000,
) -> tuple[float, float]:
    """95% percentile interval of figure(theirs) / figure(ours), of paired latencies [n each].

    Requests that arrive one after the other wait for one another, so runs of neighbours are drawn
    together, each request with both of its latencies.
    """
    blocks = np.array_split(np.arange(len(ours)), min(BLOCKS, len(ours)))
    rng = np.random.default_rng(seed)
    ratios = np.empty(resamples)
    for i in range(resamples):
        drawn = np.concatenate([blocks[b] for b in rng.integers(0, len(blocks), len(blocks))])
        ratios[i] = figure(theirs[drawn]) / figure(ours[drawn])
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _mean(latencies: Floats) -> float:
    return float(latencies.mean())


def _p95(latencies: Floats) -> float:
    return float(np.percentile(latencies, 95))


def policy_figures(outcomes: Outcomes, began: float) -> dict[str, Any]:
    """Return a policy's figures over its answers. began: the time of the first request."""
    answered = [o for o in outcomes if o is not None]
    if not answered:
        return {"requests": len(outcomes), "refused": len(outcomes), "shares": {}}
    latencies = np.asarray([o.seconds for o in answered])
    lasted = max(o.finished_at for o in answered) - began
    by_method = Counter(o.method for o in answered)
    return {
        "mean_latency_s": _mean(latencies),
        "p95_latency_s": _p95(latencies),
        "mean_ttft_s": float(np.mean([o.first_token_seconds for o in answered])),
        "outside_engine_s_p50": float(np.median([o.outside_seconds for o in answered])),
        "tokens_per_s": sum(o.output_tokens for o in answered) / lasted,
        "requests": len(outcomes),
        "refused": len(outcomes) - len(answered),
        "shares": {m: n / len(answered) for m, n in sorted(by_method.items())},
    }


def versus(ours: Outcomes, theirs: Outcomes, seed: int) -> dict[str, Any]:
    """Return the latency of theirs over ours (mean, p95), over the requests that both answered."""
    pairs = [(a.seconds, b.seconds) for a, b in zip(ours, theirs, strict=True) if a and b]
    mine, rivals = np.asarray(pairs).T
    figures: dict[str, Callable[[Floats], float]] = {"mean_latency": _mean, "p95_latency": _p95}
    return {
        name: {
            "ratio": figure(rivals) / figure(mine),
            "ci95": list(ratio_ci(figure, mine, rivals, seed)),
        }
        for name, figure in figures.items()
    }


def _line(policy: dict[str, Any]) -> list[Any]:
    shares = " ".join(f"{m} {share:.0%}" for m, share in policy["shares"].items())
    figures = ("mean_latency_s", "p95_latency_s", "mean_ttft_s", "outside_engine_s_p50", "refused")
    return [*(policy.get(name) for name in figures), shares]


def _named(rival: str, load: dict[str, Any]) -> str:
    return f"best single ({load['best_single']})" if rival == "best_single" else rival


def interval(found: dict[str, Any]) -> str:
    low, high = found["ci95"]
    return f"{found['ratio']:.2f} ({low:.2f} to {high:.2f})"
