"""The bounds that `bench bounds` found, as tables and a chart."""

from collections.abc import Mapping, Sequence
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table

BOUNDS = {
    "routed": "routed by the table",
    "best_of_domain": "best of each domain",
    "best_of_cluster": "best of each cluster",
    "best_of_prompt": "best of each prompt",
    "oracle_combine": "Oracle_Combine",
    "best_schedule": "cheapest schedule",
}


def bounds_section(figures: Mapping[str, Any]) -> Section:
    """Of one JSON of `bench bounds`."""
    known = {key: name for key, name in BOUNDS.items() if key in figures}
    return Section(
        "bounds",
        "How far speculation could go",
        [
            f"{figures['answers']} traced answers, speedup after the first token over plain "
            "steps. Fixed is every step by one drafter; oracle length drafts just what is kept; "
            "Oracle_Combine takes at each position the drafter of whose tokens most are kept; the "
            "cheapest schedule is the fastest way through an answer that any controller could take."
        ],
        [
            _ladder(figures, known),
            _single(figures),
            _combined(figures),
            *(
                _groups(figures[key], group, known)
                for key, group in (("by_domain", "domain"), ("by_cluster", "cluster"))
                if key in figures
            ),
            *_reached(figures),
        ],
    )


def _ladder(figures: Mapping[str, Any], known: Mapping[str, str]) -> Chart:
    single = figures["best_single"]["name"]
    rungs = {single: f"best single, {single}"} | dict(known)
    values = [figures["best_single"]["speedup"], *(figures[key] for key in known)]
    low, high = zip(*(figures["ci95"][key] for key in rungs), strict=True)
    return Chart(
        "bounds-ladder",
        "From one drafter to the cheapest schedule",
        "Harmonic means, each domain counting alike, with 95% bootstrap intervals over answers.",
        "bars",
        "who decides",
        "speedup over plain decoding",
        [Series("speedup", list(rungs.values()), values, low, high)],
        {"plain decoding": 1.0},
    )


def _single(figures: Mapping[str, Any]) -> Table:
    rows = [
        [name, value, *figures["ci95"][name], figures["oracle_length"][name]]
        for name, value in figures["fixed"].items()
    ]
    return Table(
        "bounds-single",
        "One drafter, as it is and with oracle lengths",
        "The study's Figure 9 at batch 1.",
        ["drafter", "fixed", "low", "high", "oracle length"],
        rows,
        decimals=2,
    )


def _combined(figures: Mapping[str, Any]) -> Table:
    single = figures["best_single"]["speedup"]
    rows = [
        [name, f["speedup"], *f["ci95"], f["speedup"] / single]
        for name, f in figures["combined"].items()
    ]
    return Table(
        "bounds-combined",
        "Oracle_Combine of any set of drafters",
        "The study's Figure 11 at batch 1.",
        ["drafters", "speedup", "low", "high", "over best single"],
        rows,
        decimals=2,
    )


def _groups(found: Mapping[str, Any], group: str, known: Mapping[str, str]) -> Table:
    names = [key for key in next(iter(found.values())) if key != "answers"]
    return Table(
        f"bounds-{group}",
        f"Bounds by {group}",
        "Harmonic means over the answers of each.",
        [group, "answers", *(known.get(name, name) for name in names)],
        [[key, own["answers"], *(own[name] for name in names)] for key, own in found.items()],
        decimals=2,
    )


def _reached(figures: Mapping[str, Any]) -> list[Table]:
    """What decoding reached, as shares of the bounds."""
    found = figures.get("reached")
    if not found:
        return []
    keys = ["best_of_prompt", "oracle_combine", "best_schedule"]
    columns = ["method", "speedup", *(f"share of: {BOUNDS[key]}" for key in keys)]
    tables = [
        Table(
            "bounds-reached",
            "What decoding reached",
            "Tokens/s after the first token over plain decoding's, and the share of each bound.",
            columns,
            [[n, own["speedup"], *(own[key] for key in keys)] for n, own in found.items()],
            decimals=2,
        )
    ]
    domains = sorted({domain for own in found.values() for domain in own["by_domain"]})
    if domains:
        tables.append(
            Table(
                "bounds-reached-domain",
                "The share of Oracle_Combine that decoding reached, by domain",
                "The same, within each domain.",
                ["method", *domains],
                [[name, *_shares(own["by_domain"], domains)] for name, own in found.items()],
                decimals=2,
            )
        )
    return tables


def _shares(found: Mapping[str, Any], domains: Sequence[str]) -> list[float | None]:
    return [found.get(domain, {}).get("oracle_combine") for domain in domains]
