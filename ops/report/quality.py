"""What lossy methods give up for speed, by the setting of their dial, of `bench quality`."""

from collections.abc import Mapping
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table

COLUMNS = {
    "speedup_vs_naive": "over naive",
    "mat": "MAT",
    "match_rate": "match rate",
    "tokens_before_divergence": "before divergence",
    "excess_nats": "excess nats",
    "nats_over_plain": "nats over plain",
    "kl_at_least": "KL at least",
    "as_if_temperature": "as if at",
    "accuracy": "right",
    "same_number": "plain's number",
}
GREEDY, SAMPLED = "excess_nats", "kl_at_least"


def quality_section(figures: Mapping[str, Any]) -> Section:
    """Return the section of a `bench quality` JSON."""
    found = figures["quality"]
    heats = dict.fromkeys(heat for own in found.values() for heat in own["by_temperature"])
    return Section(
        "quality",
        "What lossy verification costs",
        [
            "Each lossy method at several settings of its dial, compared with lossless "
            "verification of the same drafts and with plain decoding. Nats are per token, under "
            "the target. Excess nats: how much less likely its tokens are than the target's own "
            "samples (below 0: more likely). KL: a lower bound, from the best temperature of the "
            "target."
        ],
        [block for heat in heats for block in (_table(found, heat), _chart(found, heat))],
    )


def _table(found: Mapping[str, Any], heat: str) -> Table:
    at = _at(found, heat)
    keys = [key for key in COLUMNS if any(own[key] is not None for own in at.values())]
    return Table(
        f"quality-{_id(heat)}-table",
        f"Speed and quality at temperature {heat}",
        "Intervals are 95%.",
        ["method", *(c for key in keys for c in _columns(key, at))],
        [[name, *(v for key in keys for v in _values(own, key, at))] for name, own in at.items()],
    )


def _columns(key: str, at: Mapping[str, Any]) -> list[str]:
    name = COLUMNS[key]
    return [name, f"{name}, low", f"{name}, high"] if _has_interval(key, at) else [name]


def _values(own: Mapping[str, Any], key: str, at: Mapping[str, Any]) -> list[float | None]:
    if not _has_interval(key, at):
        return [own[key]]
    return [own[key], *(own[f"{key}_ci95"] or (None, None))]


def _has_interval(key: str, at: Mapping[str, Any]) -> bool:
    return any(own.get(f"{key}_ci95") for own in at.values())


def _chart(found: Mapping[str, Any], heat: str) -> Chart:
    """A line for each method, from lossless verification through its settings as they were
    named."""
    key = GREEDY if heat == "0" else SAMPLED
    by_method: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for name, at in _at(found, heat).items():
        own = found[name]
        told = "lossless" if own["lossless"] else _setting(own)
        if at["speedup_vs_naive"] is not None:
            by_method.setdefault(own["method"], []).append((told, at))
    return Chart(
        f"quality-{_id(heat)}",
        f"Distance from plain decoding by speed, at temperature {heat}",
        "The first point of each line is lossless verification.",
        "lines",
        "speedup over naive",
        f"{COLUMNS[key]}, a token",
        [
            Series(
                method,
                [at["speedup_vs_naive"] for _, at in points],
                [at[key] for _, at in points],
                [at[f"{key}_ci95"][0] for _, at in points],
                [at[f"{key}_ci95"][1] for _, at in points],
                [told for told, _ in points],
            )
            for method, points in by_method.items()
        ],
    )


def _setting(own: Mapping[str, Any]) -> str:
    return "as it is" if own["dial"] is None else f"{own['dial']} {own['value']:g}"


def _at(found: Mapping[str, Any], heat: str) -> dict[str, Any]:
    return {
        name: own["by_temperature"][heat]
        for name, own in found.items()
        if heat in own["by_temperature"]
    }


def _id(heat: str) -> str:
    return heat.replace(".", "-")
