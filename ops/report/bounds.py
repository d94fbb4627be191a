"""The bounds that `bench bounds` found, as tables and a chart."""

from collections.abc import Mapping
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
    """Return the section of a `bench bounds` JSON."""
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
    shares = [(key, f"share of: {BOUNDS[key]}") for key in keys]
    columns = [("speedup", "speedup"), *shares]
    total = Table(
        "bounds-reached",
        "What decoding reached",
        "Speedup after the first token over plain decoding, and the share of each bound on the "
        "same answers, with 95% bootstrap intervals.",
        ["method", "answers", *(c for _, n in columns for c in (n, f"{n}, low", f"{n}, high"))],
        [
            [
                name,
                own["answers"],
                *(v for key, _ in columns for v in (own[key], *own["ci95"][key])),
            ]
            for name, own in found.items()
        ],
        decimals=2,
    )
    grouped = {"by_domain": "domain", "by_cluster": "cluster"}
    return [
        total,
        *(_reached_by(found, key, group) for key, group in grouped.items() if _any(found, key)),
    ]


def _any(found: Mapping[str, Any], key: str) -> bool:
    return any(own.get(key) for own in found.values())


def _reached_by(found: Mapping[str, Any], key: str, group: str) -> Table:
    """A row for each domain or cluster, in the order of the file."""
    labels = list(dict.fromkeys(label for own in found.values() for label in own.get(key) or {}))
    columns = [c for name in found for c in (name, f"{name}, low", f"{name}, high")]
    return Table(
        f"bounds-reached-{group}",
        f"The share of Oracle_Combine that decoding reached, by {group}",
        f"The same, within each {group}; with few answers intervals are too narrow.",
        [group, *columns],
        [
            [label, *(v for own in found.values() for v in _share(own, key, label))]
            for label in labels
        ],
        decimals=2,
    )


def _share(own: Mapping[str, Any], key: str, label: str) -> list[float | None]:
    inside = (own.get(key) or {}).get(label)
    if inside is None:
        return [None, None, None]
    return [inside["oracle_combine"], *inside["ci95"]["oracle_combine"]]
