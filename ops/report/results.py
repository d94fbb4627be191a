"""Speedups by cluster: measured, from a CSV file or the paper's, and their tables and figures."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from ops.common.boundary import InputError
from ops.common.output import cell
from ops.common.settings import load_config
from router import cluster
from router.embed import Encoder
from router.fit.assign import paired_speedups
from router.fit.profile import Profile
from router.fit.speedup import harmonic_mean, paired_bootstrap_ci
from schemas.json_files import read_json
from schemas.text_files import text_lines

Floats = NDArray[np.float64]

PAPER = Path(__file__).parents[1] / "data" / "paper.json"
SIZES = (5, 10, 20)
"""Numbers of clusters of the paper's Table IV."""
INCHES = (8.5, 4.2)
INTERVAL = ["low", "high"]
"""Ends of a 95% bootstrap interval over prompts."""
MOST = 1e6
"""A speedup beyond it, or below its inverse, was not measured."""


@dataclass(frozen=True)
class Results:
    """Speedups of m methods in k clusters over a baseline, and what else a source knows.

    speedups [k, m]: harmonic means, nan in a cluster without prompts that count. portfolio: the
    methods that are chosen among. clustering: Table I. overall: by method the speedup over all
    prompts and its interval. by_k: Table IV. rates: tokens/s by method: mean, 5th and 95th
    percentile. plane [n, 2], labels [n]: prompts on their first two principal components, and
    their clusters.
    """

    source: str
    baseline: str
    methods: tuple[str, ...]
    speedups: Floats
    portfolio: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    clustering: Mapping[str, float] = field(default_factory=dict)
    overall: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    by_k: Mapping[int, Mapping[str, float | None]] = field(default_factory=dict)
    rates: Mapping[str, Sequence[float]] = field(default_factory=dict)
    plane: tuple[Floats, NDArray[np.intp]] | None = None

    @cached_property
    def means(self) -> dict[str, float]:
        """By method, the harmonic mean over the clusters that have all speedups."""
        rows = self.speedups[[not any(row != row) for row in self.speedups]]
        return {name: harmonic_mean(rows[:, i]) for i, name in enumerate(self.methods)}

    @property
    def best_single(self) -> str:
        """The portfolio's best method over all clusters."""
        return max(self.portfolio, key=lambda name: self.means[name])

    @property
    def assignment(self) -> list[str | None]:
        """The portfolio's best method of each cluster [k]; None without prompts that count."""
        rows = [dict(zip(self.methods, row, strict=True)) for row in self.speedups.tolist()]
        return [
            None if any(map(math.isnan, row.values())) else max(self.portfolio, key=row.__getitem__)
            for row in rows
        ]

    @property
    def routed(self) -> float:
        """The harmonic mean if each cluster has its best method."""
        chosen = enumerate(self.assignment)
        return harmonic_mean(
            [self.speedups[k, self.methods.index(name)] for k, name in chosen if name is not None]
        )

    def label(self, method: str) -> str:
        """Return the source's name for a method, or else ours."""
        return self.labels.get(method, method)


def published() -> Results:
    """Return the paper's numbers."""
    found = read_json(PAPER)
    return Results(
        source=f"{found['source']}: {', '.join(found['places'].values())}",
        baseline=found["baseline"],
        methods=tuple(found["by_cluster"]),
        speedups=np.asarray(list(found["by_cluster"].values()), dtype=float).T,
        portfolio=tuple(found["portfolio"]),
        labels=found["labels"],
        clustering=found["clustering"],
        overall={name: (value, None, None) for name, value in found["overall"].items()},
        by_k={int(k): row for k, row in found["by_k"].items()},
    )


def tabulated(file: Path) -> Results:
    """Return the speedups of a CSV file with the columns cluster and a method each.

    Rows may stand in any order. Raises InputError naming the line.
    """
    [(_, header), *rows] = _cells(file) or [(1, [])]
    methods = tuple(header[1:])
    if header[:1] != ["cluster"] or not methods or len({*header, ""}) <= len(header):
        raise InputError(f"{file}, line 1: must be `cluster,` and then a method per column")
    found: dict[str, list[float]] = {}
    for line, (number, *cells) in rows:
        if len(cells) != len(methods) or number in found:
            raise InputError(f"{file}, line {line}: needs {len(header)} cells and its own cluster")
        place = f"{file}, line {line}"
        found[number] = [_speedup(*pair, place) for pair in zip(methods, cells, strict=True)]
    if not found or {*found} != {str(k) for k in range(len(found))}:
        raise InputError(f"{file}: number the clusters from 0 without a gap")
    values = np.asarray([found[str(k)] for k in range(len(found))])
    return Results(str(file), "the table's baseline", methods, values, methods)


def _cells(file: Path) -> list[tuple[int, list[str]]]:
    """Return each row of a CSV that is not blank, with its line from 1."""
    reader = csv.reader((line for _, line in text_lines(file)), strict=True)
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: not CSV: {error}") from error


def _speedup(method: str, cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not 1.0 / MOST <= value <= MOST:
        raise InputError(f"{place}: {method} must be a number above 0, not {cell[:40]!r}")
    return value


def measured(
    folder: Path, config: Path | None, clusters: int, temperature: float, seed: int
) -> Results:
    """Cluster a profile's prompts and return its speedups at one temperature.

    Raises InputError if nothing was measured at it, or fewer prompts than clusters count.
    """
    profile = _at(Profile.load(folder), temperature)
    paired = profile.paired()
    if (count := len(paired.prompt_ids)) < clusters:
        raise InputError(f"--clusters: {clusters} of {count} prompts that count for speed")
    settings = load_config(config).router
    encoder = Encoder(settings.encoder)
    vectors = encoder.embed([p.text for p in profile.prompts])
    centroids = cluster.fit(vectors, clusters, seed)
    labels = cluster.assign(centroids, vectors)
    label_of = {p.id: int(c) for p, c in zip(profile.prompts, labels, strict=True)}
    means, counts = paired_speedups(profile, paired.methods, label_of, clusters)
    sizes = np.bincount(labels, minlength=clusters)
    portfolio = tuple(name for name in paired.methods if profile.meta.lossless[name])
    row_of = {p.id: row for row, p in enumerate(profile.prompts)}
    own = vectors[[row_of[p] for p in paired.prompt_ids]]
    among = paired.speedups[:, [paired.methods.index(name) for name in portfolio]]
    plain = np.ones(len(own))
    return Results(
        source=f"{folder} at temperature {temperature:g}: {profile.meta.measured_under}",
        baseline=profile.baseline,
        methods=paired.methods,
        speedups=np.where(counts > 0, means, np.nan),
        portfolio=portfolio,
        clustering={
            "prompts": len(vectors),
            "clusters": clusters,
            "silhouette": cluster.silhouette(vectors, labels),
            "mean_size": float(np.mean(sizes)),
            "size_deviation": float(np.std(sizes)),
        },
        overall={
            name: (harmonic_mean(column), *paired_bootstrap_ci(column, plain, seed))
            for name, column in zip(paired.methods, paired.speedups.T, strict=True)
        },
        by_k={
            k: routed(own, among, k, seed) for k in sorted({*SIZES, clusters}) if 2 * k <= len(own)
        },
        rates={name: _rates(profile, name, paired.prompt_ids) for name in paired.methods},
        plane=(PCA(n_components=2, random_state=0).fit_transform(vectors), labels),
    )


def _at(profile: Profile, temperature: float) -> Profile:
    rows = tuple(row for row in profile.rows if row.temperature == temperature)
    if not rows:
        known = ", ".join(f"{t:g}" for t in sorted({row.temperature for row in profile.rows}))
        raise InputError(f"--temperature: nothing was measured at {temperature:g}, only at {known}")
    asked = {row.prompt_id for row in rows}
    prompts = tuple(prompt for prompt in profile.prompts if prompt.id in asked)
    return replace(profile, prompts=prompts, rows=rows)


def routed(
    vectors: NDArray[np.float32], speedups: Floats, k: int, seed: int
) -> dict[str, float | None]:
    """Return the harmonic mean if each of k clusters has its best method, judged on the prompts
    that it was chosen on, as in the paper: vectors [n, d] and speedups [n, m] of prompts.

    `evaluate` judges a table on other prompts.
    """
    labels = cluster.assign(cluster.fit(vectors, k, seed), vectors)
    own = [speedups[labels == c] for c in np.unique(labels)]
    best = [each[:, (1.0 / each).mean(axis=0).argmin()] for each in own]
    return {"routed": harmonic_mean(np.concatenate(best))}


def _rates(profile: Profile, method: str, prompts: Sequence[str]) -> list[float]:
    [temperature] = {row.temperature for row in profile.rows}
    cells = [profile.cells[prompt, temperature, method] for prompt in prompts]
    rates = [c.output_tokens / c.seconds for c in cells]
    return [float(np.mean(rates)), *map(float, np.percentile(rates, [5, 95]))]


def write(results: Results, out: Path) -> list[Path]:
    """Write report.md and its figures; return the files."""
    out.mkdir(parents=True, exist_ok=True)
    pictures = [_draw(out, name, results) for name in _figures(results)]
    text = [
        "# Speedups by cluster",
        f"Source: {results.source}. Speedups are over {results.baseline}, harmonic means.",
        *_tables(results),
        *(f"![{file.stem}]({file.name})" for file in pictures),
    ]
    page = out / "report.md"
    page.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return [page, *pictures]


def _tables(results: Results) -> list[str]:
    """Return Tables I to IV in Markdown, as far as the source has their numbers."""
    rows = [
        [results.label(n), mean, *results.overall.get(n, ())] for n, mean in results.means.items()
    ]
    names = [results.label(name) for name in results.methods]
    by_cluster = [
        [c, *(f"**{v:.2f}**" if v == max(row) else v for v in row)]
        for c, row in enumerate(results.speedups.tolist())
    ]
    over_prompts = ["overall", *INTERVAL]
    by_k = [[k, row["routed"]] for k, row in results.by_k.items()]
    titles: dict[str, tuple[Sequence[str], Sequence[Sequence[Any]]]] = {
        "I. Clusters": (["metric", "value"], [*results.clustering.items()]),
        "II. Speedup of every method": (["method", "over clusters", *over_prompts], rows),
        "III. Speedup by cluster, the best in bold": (["cluster", *names], by_cluster),
        "IV. Speedup by number of clusters": (["clusters", "routed"], by_k),
    }
    filled = {title: _grid(*of) for title, of in titles.items() if of[1]}
    return [f"## Table {title}\n\n{grid}" for title, grid in filled.items()]


def _grid(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown; columns that no row fills are left out."""
    filled = [i for i in range(len(columns)) if any(i < len(r) and r[i] is not None for r in rows)]
    lines = [[columns[i] for i in filled], ["---"] * len(filled)]
    lines += [[cell(row[i]) if i < len(row) else "–" for i in filled] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _figures(results: Results) -> dict[str, Callable[[Axes, Results], None]]:
    """Return what draws the paper's Figures 1, 2, 6 and 7, if the source has their numbers."""
    return {
        **({"figure-1": _rates_by_method} if results.rates else {}),
        **({"figure-2": _map} if results.plane is not None else {}),
        "figure-6": _clusters,
        "figure-7": _chosen,
    }


def _draw(out: Path, name: str, results: Results) -> Path:
    drawn = Figure(figsize=INCHES, layout="constrained")
    axes = drawn.subplots()
    _figures(results)[name](axes, results)
    if axes.get_legend_handles_labels()[1]:
        drawn.legend(loc="outside lower center", ncols=3, fontsize=8)
    drawn.savefig(file := out / f"{name}.png", dpi=150, metadata={"Software": None})
    return file


def _rates_by_method(axes: Axes, results: Results) -> None:
    mean, low, high = zip(*results.rates.values(), strict=True)
    axes.bar([*results.rates], mean)
    axes.vlines([*results.rates], low, high, color="grey")
    axes.set(title="Figure 1. Tokens per second, and the 5th to 95th percentile", ylabel="tokens/s")


def _map(axes: Axes, results: Results) -> None:
    if results.plane is not None:
        points, labels = results.plane
        axes.scatter(points[:, 0], points[:, 1], c=labels, s=14, cmap="tab20")
    axes.set(title="Figure 2. The prompts' vectors on two principal components, by cluster")


def _clusters(axes: Axes, results: Results) -> None:
    k, m = results.speedups.shape
    for at, name in enumerate(results.methods):
        places = [c + 0.8 * ((at + 0.5) / m - 0.5) for c in range(k)]
        axes.bar(places, results.speedups[:, at], 0.8 / m, label=results.label(name))
    axes.axhline(1.0, color="grey", linestyle="--", label=results.baseline)
    title = "Figure 6. Speedup of every method by cluster"
    axes.set(title=title, xlabel="cluster", ylabel="speedup", xticks=range(k))


def _chosen(axes: Axes, results: Results) -> None:
    for name in dict.fromkeys(results.assignment):
        if name is not None:
            own = [c for c, chosen in enumerate(results.assignment) if chosen == name]
            column = results.methods.index(name)
            axes.bar(own, results.speedups[own, column], label=results.label(name))
    axes.axhline(results.routed, color="grey", linestyle="--", label="routed")
    single = f"best single method, {results.label(results.best_single)}"
    axes.axhline(results.means[results.best_single], color="grey", linestyle=":", label=single)
    title = "Figure 7. The method chosen for each cluster"
    ticks = range(len(results.assignment))
    axes.set(title=title, xlabel="cluster", ylabel="speedup", xticks=ticks)
