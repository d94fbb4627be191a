"""The figures and tables of `bench learning`."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group

from ops.harness.output import table
from ops.load.learning.runs import Pair, Run
from ops.load.report import interval, policy_figures, versus

STATIC = "static_table"
ROUTED = "routed"


def figures_of(run: Run, about: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return a scenario's figures by phase and over time. `about` describes the scenario."""
    phases = [
        _phase(name, run.starts[name], list(pairs), seed)
        for name, pairs in groupby(run.pairs, key=lambda pair: pair.phase)
    ]
    return {
        **about,
        "failed": run.failures,
        "phases": phases,
        "pairs": [_pair(pair) for pair in run.pairs],
        "table": [
            {
                "at": round(look.at, 2),
                "version": look.version,
                "fit_id": look.fit_id,
                "favourites": look.favourites,
                "drift": look.drift,
                "alarm_above": look.alarm_above,
            }
            for look in run.looks
        ],
    }


def tables_of(figures: dict[str, Any]) -> Iterable[Group | str]:
    """Yield a table per scenario with a line per phase."""
    columns = [
        "phase",
        "routed s",
        "static s",
        "static over routed",
        "in its second half",
        "methods",
    ]
    for name, scenario in figures["scenarios"].items():
        rows = []
        for phase in scenario["phases"]:
            shares = " ".join(f"{m} {x:.0%}" for m, x in phase[ROUTED]["shares"].items())
            seconds = [phase[way].get("mean_latency_s") for way in (ROUTED, STATIC)]
            ratios = [_ratio(phase[part]) for part in ("static_over_routed", "second_half")]
            rows.append([phase["phase"], *seconds, *ratios, shares])
        failed = f", {len(scenario['failed'])} FAILED" if scenario["failed"] else ""
        yield table(f"{name}: {len(scenario['pairs'])} pairs{failed}", columns, rows)


def _phase(name: str, began: float, pairs: Sequence[Pair], seed: int) -> dict[str, Any]:
    def ratio(some: Sequence[Pair]) -> dict[str, Any] | None:
        both = [pair for pair in some if pair.routed and pair.static]
        if len(both) < 2:
            return None
        found = versus([p.routed for p in both], [p.static for p in both], seed)
        ratio: dict[str, Any] = found["mean_latency"]
        return ratio

    return {
        "phase": name,
        "from_s": round(began, 2),
        "pairs": len(pairs),
        ROUTED: policy_figures([p.routed for p in pairs], began),
        STATIC: policy_figures([p.static for p in pairs], began),
        "static_over_routed": ratio(pairs),
        "second_half": ratio(pairs[len(pairs) // 2 :]),
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "at": round(pair.at, 2),
        "routed_s": pair.routed and round(pair.routed.seconds, 4),
        "routed_method": pair.routed and pair.routed.method,
        "static_s": pair.static and round(pair.static.seconds, 4),
        "static_method": pair.static and pair.static.method,
    }


def _ratio(found: dict[str, Any] | None) -> str:
    return "–" if found is None else interval(found)
