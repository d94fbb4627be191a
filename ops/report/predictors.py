"""What `bench prediction` says of clusterings and other predictors, and of their numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

from ops.report.blocks import Chart, Section, Series, Table


def predictors_section(figures: Mapping[str, Any]) -> Section:
    """Of one JSON of `bench prediction`; with the clusterings that it compared, if it did."""
    found: list[Mapping[str, Any]] = figures["choices"]
    blocks: list[Table | Chart] = [_forms(figures["forms"])]
    if found:
        blocks += [_table(found), *(_chart(found, heat) for heat in _temperatures(found))]
    return Section(
        "predictors",
        "What foretells acceptance, and how many clusters",
        [
            f"Learned from {figures['learned_from']} answers, judged on {figures['foretold']} "
            "others: what choosing by each predictor is worth over the best single method, with a "
            "95% bootstrap interval. own_acceptance knows each answer's own, which nobody does "
            "beforehand: the ceiling."
        ],
        blocks,
    )


def _forms(forms: Mapping[str, Any]) -> Table:
    return Table(
        "predictors-forms",
        "Forms of prediction",
        "The error is that of log acceptance: root of the mean square, over all methods.",
        ["form", "error", "temperature", "over best single", "low", "high"],
        [
            [name, own["log_acceptance_rmse"], heat, *_gain(at)]
            for name, own in forms.items()
            for heat, at in own["by_temperature"].items()
        ],
    )


def _table(found: Sequence[Mapping[str, Any]]) -> Table:
    columns = ["kind", "clusters", "error", "temperature", "over best single", "low", "high"]
    return Table(
        "predictors-choices",
        "Clusterings, and forms beside them",
        "Stability: what two halves of the learned prompts agree on, for the prompts that are "
        "foretold: the same method, and the same clusters (adjusted Rand index).",
        [*columns, "same method", "same clusters"],
        [
            [
                *(row["kind"], row["clusters"], row["log_acceptance_rmse"], heat),
                *(*_gain(at), row["stability"]["methods"], row["stability"]["clusters"]),
            ]
            for row in found
            for heat, at in row["by_temperature"].items()
        ],
    )


def _chart(found: Sequence[Mapping[str, Any]], heat: str) -> Chart:
    by_kind: dict[str, list[tuple[int, list[float]]]] = {}
    for row in found:
        if row["stability"]["clusters"] is not None and heat in row["by_temperature"]:
            gain = _gain(row["by_temperature"][heat])
            by_kind.setdefault(row["kind"], []).append((row["asked_clusters"], gain))
    series = []
    for kind, points in by_kind.items():
        sizes, gains = zip(*points, strict=True)
        middle, low, high = zip(*gains, strict=True)
        series.append(Series(kind, sizes, middle, low, high))
    return Chart(
        f"predictors-{heat.replace('.', '-')}",
        f"Routing by number of clusters, at temperature {heat}",
        "Over the best single method, on prompts that were not learned from. HDBSCAN is told the "
        "number only as the least size of a cluster.",
        "lines",
        "clusters asked for",
        "over the best single method",
        series,
        {"the best single method": 1.0},
    )


def _temperatures(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({heat for row in found for heat in row["by_temperature"]}, key=float)


def _gain(at: Mapping[str, float]) -> list[float]:
    return [at[f"routed_over_best_single{end}"] for end in ("", "_low", "_high")]
