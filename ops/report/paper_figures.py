"""The paper's Figures 1, 2, 6 and 7. It publishes no numbers of 1 and 2: they are of ours alone."""

from ops.report.blocks import Chart, Series
from ops.report.results import Results


def paper_figures(source: Results) -> list[Chart]:
    """Those that the source has the numbers for."""
    charts = [*_rates(source), *_map(source), _clusters(source), _chosen(source)]
    return [chart for chart in charts if chart.series]


def _rates(source: Results) -> list[Chart]:
    parameters = {n: r.parameters / 1e6 for n, r in source.rates.items() if r.parameters}
    rates = source.rates
    return [
        Chart(
            "figure-1a",
            "Figure 1 (a). Parameters by method",
            "Of the target and of what drafts for it, in millions.",
            "bars",
            "method",
            "million parameters",
            [Series("parameters", list(parameters), list(parameters.values()))][: len(parameters)],
        ),
        Chart(
            "figure-1b",
            "Figure 1 (b). Tokens per second by method",
            "Mean over prompts, with the 5th and 95th percentile, between which most prompts are.",
            "bars",
            "method",
            "tokens/s",
            [
                Series(
                    "tokens/s",
                    list(rates),
                    [r.tokens_per_s for r in rates.values()],
                    [r.least for r in rates.values()],
                    [r.most for r in rates.values()],
                )
            ]
            if rates
            else [],
        ),
    ]


def _map(source: Results) -> list[Chart]:
    clusters = sorted({spot.cluster for spot in source.prompts})
    series = []
    for cluster in clusters:
        own = [spot for spot in source.prompts if spot.cluster == cluster]
        series.append(Series(f"cluster {cluster}", [s.x for s in own], [s.y for s in own]))
    if source.centroids:
        x, y = [s.x for s in source.centroids], [s.y for s in source.centroids]
        series.append(Series("centroids", x, y))
    return [
        Chart(
            "figure-2",
            "Figure 2. The prompts' vectors and their clusters",
            "On the first two principal components; clusters are made in all dimensions.",
            "points",
            "first component",
            "second component",
            series,
        )
    ]


def _clusters(source: Results) -> Chart:
    clusters = [str(c) for c in range(len(next(iter(source.by_cluster.values()))))]
    return Chart(
        "figure-6",
        "Figure 6. Speedup of every method by cluster",
        f"Over {source.baseline}, harmonic means over the cluster's prompts.",
        "bars",
        "cluster",
        "speedup",
        [
            Series(source.label(name), clusters, values, slot=slot)
            for slot, (name, values) in enumerate(source.by_cluster.items())
        ],
        {} if source.baseline in source.by_cluster else {source.baseline: 1.0},
    )


def _chosen(source: Results) -> Chart:
    assigned = source.assigned(source.portfolio)
    clusters = [str(c) for c in source.measured_clusters]
    series = []
    for name in source.portfolio:
        speedups = [
            source.by_cluster[name][c] if chosen == name else None
            for c, chosen in zip(source.measured_clusters, assigned.assignment, strict=True)
        ]
        if any(value is not None for value in speedups):
            slot = list(source.by_cluster).index(name)
            series.append(Series(source.label(name), clusters, speedups, slot=slot))
    levels = {
        "mean of the clusters' best": assigned.routed,
        f"best single method, {source.label(assigned.best_single)}": assigned.best_single_speedup,
    }
    if source.oracle is not None:
        levels["each prompt's fastest measurement"] = source.oracle.value
    return Chart(
        "figure-7",
        "Figure 7. The method chosen for each cluster, and its speedup",
        "Harmonic means; the levels are means over clusters, and over prompts of the fastest "
        "measurement, which holds the noise of measuring.",
        "stack",
        "cluster",
        "speedup",
        series,
        levels,
    )
