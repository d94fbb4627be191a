"""The paper's Tables I to IV, with its numbers and ours."""

from typing import Any

from ops.report.blocks import Table
from ops.report.results import Clustering, Mean, Results

CLAIMS = {
    "routed": "speedup, routed",
    "best_single": "speedup of the best single method",
    "embed_ms": "milliseconds to embed a prompt",
    "prompts_per_minute": "prompts embedded a minute",
}
METRICS = {
    "prompts": "prompts",
    "clusters": "clusters",
    "silhouette": "silhouette score",
    "davies_bouldin": "Davies-Bouldin index",
    "calinski_harabasz": "Calinski-Harabasz index",
    "inertia": "inertia",
    "mean_size": "mean cluster size",
    "size_deviation": "standard deviation of cluster sizes",
}


def paper_tables(paper: Results, own: Results | None) -> list[Table]:
    """Return Tables I to IV; `own` adds our measurements."""
    tables = [_first(paper, own), _second(paper, own), _third(paper, "table-3", "Table III")]
    if own is not None:
        tables.append(_third(own, "table-3-here", "Table III of what was measured here"))
    return [*tables, _fourth(paper, own)]


def _first(paper: Results, own: Results | None) -> Table:
    sources = [paper.clustering] if own is None else [paper.clustering, own.clustering]
    rows = [
        [name, *(None if c is None else getattr(c, metric) for c in sources)]
        for metric, name in METRICS.items()
        if metric in Clustering.model_fields
    ]
    return Table(
        "table-1",
        "Table I. How compact and distinct the clusters are",
        f"The paper: {paper.places['clustering']}. Silhouette: higher is better; Davies-Bouldin: "
        "lower is better. Inertia grows with the number of prompts.",
        ["metric", "paper", "here"][: len(sources) + 1],
        rows,
        decimals=4,
    )


def _second(paper: Results, own: Results | None) -> Table:
    published = _over_clusters(paper)
    columns = ["method", "paper's name", "paper", "paper, recomputed from Table III"]
    rows: list[list[Any]] = [
        [name, paper.label(name), value, published[name]] for name, value in paper.overall.items()
    ]
    note = (
        f"Harmonic means over clusters. The paper: {paper.places['overall']}, over "
        f"{paper.baseline}."
    )
    if own is not None:
        measured = _over_clusters(own)
        columns += ["here, over clusters", "here, over prompts", "low", "high"]
        rows += [[name, None, None, None] for name in own.overall if name not in paper.overall]
        for row in rows:
            found = own.intervals.get(row[0])
            row += [measured.get(row[0]), own.overall.get(row[0]), *_ends(found)]
        note += (
            f" Here: over {own.baseline}; low and high are a 95% bootstrap interval over prompts."
        )
    return Table("table-2", "Table II. Speedup of every method", note, columns, rows, decimals=2)


def _third(source: Results, identity: str, title: str) -> Table:
    names = list(source.by_cluster)
    rows: list[list[Any]] = [
        [cluster, *values]
        for cluster, values in enumerate(zip(*source.by_cluster.values(), strict=True))
    ]
    best = frozenset(
        (at, 1 + values.index(max(values)))
        for at, row in enumerate(rows)
        if None not in (values := row[1:])
    )
    where = f"{source.places['by_cluster']}. " if source.places else ""
    return Table(
        identity,
        f"{title}. Speedup by cluster",
        f"{where}Over {source.baseline}; the best of each cluster is bold.",
        ["cluster", *(source.label(name) for name in names)],
        rows,
        best,
        decimals=2,
    )


def _fourth(paper: Results, own: Results | None) -> Table:
    sizes = sorted(paper.by_k | (own.by_k if own else {}))
    columns = ["clusters", "paper"]
    rows: list[list[Any]] = [[k, paper.by_k[k].routed if k in paper.by_k else None] for k in sizes]
    assigned = paper.assigned(paper.portfolio)
    note = (
        f"The paper: {paper.places['by_k']}. Its Table III with the best of "
        f"{', '.join(paper.label(name) for name in paper.portfolio)} in each of its "
        f"{len(assigned.assignment)} clusters gives {assigned.routed:.4f}, and the best of the "
        f"three alone, {paper.label(assigned.best_single)}, {assigned.best_single_speedup:.4f}."
    )
    if own is not None:
        columns += ["here", "here, held out", "held out over best single", "low", "high"]
        for row in rows:
            found = own.by_k.get(row[0])
            row += [found and found.routed, found and found.held_out]
            ratio = found.over_best_single if found else None
            row += [ratio and ratio.value, *_ends(ratio)]
        note += (
            " Here: the best of each cluster on the prompts it was chosen on, as in the paper; "
            "then on prompts it was not chosen on, which is what a user gets."
        )
    return Table(
        "table-4", "Table IV. Speedup by number of clusters", note, columns, rows, decimals=4
    )


def claims_table(paper: Results, own: Results | None) -> Table:
    """Return the figures of the paper's text; `own` adds our measurements of them."""
    k = own.clustering.clusters if own and own.clustering else 0
    routed = own.by_k[k].held_out if own and k in own.by_k else None
    here = {"routed": routed, "best_single": max(own.overall.values()) if own else None}
    columns = ["claim", "paper", "here"] if own else ["claim", "paper"]
    rows = [[CLAIMS[n], v, here.get(n)][: len(columns)] for n, v in paper.claims.items()]
    note = (
        f"{paper.places['claims']}. Here: routed on prompts that were not chosen on; "
        "`specadapt bench router` times the embedding."
    )
    return Table("claims", "What the paper says in its text", note, columns, rows)


def _over_clusters(source: Results) -> dict[str, float]:
    return source.assigned(tuple(source.by_cluster)).harmonic_mean


def _ends(found: Mean | None) -> list[float | None]:
    return [None, None] if found is None else [found.low, found.high]
