"""The paper's tables and figures of a profile that was measured here."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ops.harness.boundary import InputError
from ops.report.results import Clustering, Mean, Rate, Results, Routed, Spot
from router import cluster
from router.fit.assign import paired_speedups
from router.fit.profile import Paired, Profile
from router.fit.speedup import (
    MIN_TOKENS,
    harmonic_mean,
    oracle_rates,
    paired_bootstrap_ci,
    speedup,
    tokens_per_second,
)

Floats = NDArray[np.float64]

SIZES = (5, 10, 20)
"""Numbers of clusters of the paper's Table IV."""
FOLDS = 5
SHOWN = 60
"""Letters of a prompt that are shown of it."""


def measured(
    profile: Profile,
    vectors: NDArray[np.float32],
    clusters: int,
    temperature: float,
    parameters: Mapping[str, int],
    seed: int,
) -> Results:
    """Return the results of the answers at one temperature.

    vectors [n, d]: in the order of the profile's prompts. parameters: by method, if the bundle is
    known. Raises InputError if nothing was measured at this temperature, or fewer prompts than
    clusters.
    """
    at = _at(profile, temperature)
    paired = at.paired()
    if len(paired.prompt_ids) < clusters:
        raise InputError(
            f"--clusters: {clusters} of {len(paired.prompt_ids)} prompts that count for speed"
        )
    centroids = cluster.fit(vectors, clusters, seed)
    labels = cluster.assign(centroids, vectors)
    label_of = {p.id: int(c) for p, c in zip(at.prompts, labels, strict=True)}
    speeds, counts = paired_speedups(at, paired.methods, label_of, clusters)
    names = [name for name in paired.methods if name != at.baseline]
    columns = {name: paired.methods.index(name) for name in names}
    portfolio = tuple(n for n in paired.methods if at.meta.lossless[n])
    row_of = {p.id: row for row, p in enumerate(at.prompts)}
    own = vectors[[row_of[p] for p in paired.prompt_ids]]
    spots, middles = _map(at, vectors, labels, centroids)
    chosen_among = paired.speedups[:, [paired.methods.index(n) for n in portfolio]]
    return Results(
        source="measured here",
        baseline=at.baseline,
        clustering=_clustering(vectors, labels, centroids),
        overall={n: harmonic_mean(paired.speedups[:, c]) for n, c in columns.items()},
        intervals={n: mean_of(paired.speedups[:, c], seed) for n, c in columns.items()},
        by_cluster={
            n: tuple(float(speeds[k, c]) if counts[k, c] else None for k in range(clusters))
            for n, c in (columns | {at.baseline: paired.methods.index(at.baseline)}).items()
        },
        portfolio=portfolio,
        by_k={
            k: routed(own, chosen_among, k, seed)
            for k in sorted({*SIZES, clusters})
            if 2 * k <= len(own)
        },
        rates=_rates(at, paired, parameters),
        prompts=spots,
        centroids=middles,
        oracle=_oracle(at, portfolio, paired.prompt_ids, chosen_among, seed),
    )


def _at(profile: Profile, temperature: float) -> Profile:
    rows = tuple(row for row in profile.rows if row.temperature == temperature)
    if not rows:
        heats = sorted({row.temperature for row in profile.rows})
        raise InputError(
            f"--temperature: nothing was measured at {temperature:g}, only at "
            f"{', '.join(f'{heat:g}' for heat in heats)}"
        )
    asked = {row.prompt_id for row in rows}
    if asked != {prompt.id for prompt in profile.prompts}:
        raise InputError(f"--temperature: at {temperature:g} not all prompts were answered")
    return Profile(profile.meta, profile.prompts, rows, profile.steps)


def mean_of(speedups: Floats, seed: int) -> Mean:
    """The harmonic mean of speedups [n] with the interval of a bootstrap over prompts."""
    low, high = paired_bootstrap_ci(speedups, np.ones_like(speedups), seed)
    return Mean(value=harmonic_mean(speedups), low=low, high=high)


def ratio_of(speedups: Floats, others: Floats, seed: int) -> Mean:
    """The ratio of the harmonic means of both [n each], with the interval of a paired bootstrap."""
    low, high = paired_bootstrap_ci(speedups, others, seed)
    ratio = speedup(harmonic_mean(others), harmonic_mean(speedups))
    return Mean(value=ratio, low=low, high=high)


def routed(vectors: NDArray[np.float32], speedups: Floats, k: int, seed: int) -> Routed:
    """What choosing by k clusters is worth: speedups [n, m] of prompts with vectors [n, d].

    Held out: prompts are dealt into FOLDS parts; clusters and their best methods come from the
    others of each part."""
    every = np.arange(len(vectors))
    inside = speedups[every, _choices(vectors, speedups, vectors, k, seed)]
    chosen = np.zeros(len(vectors), dtype=np.intp)
    for part in np.array_split(np.random.default_rng(seed).permutation(len(vectors)), FOLDS):
        rest = np.setdiff1d(every, part)
        chosen[part] = _choices(
            vectors[rest], speedups[rest], vectors[part], min(k, len(rest)), seed
        )
    outside = speedups[every, chosen]
    single = speedups[:, int(np.argmin((1.0 / speedups).mean(axis=0)))]
    return Routed(
        routed=harmonic_mean(inside),
        held_out=harmonic_mean(outside),
        over_best_single=ratio_of(outside, single, seed),
    )


def _choices(
    vectors: NDArray[np.float32],
    speedups: Floats,
    asked: NDArray[np.float32],
    k: int,
    seed: int,
) -> NDArray[np.intp]:
    """The method [n'] that is best (harmonic mean) in the cluster of each asked vector [n', d]."""
    centroids = cluster.fit(vectors, k, seed)
    labels = cluster.assign(centroids, vectors)
    slow = 1.0 / speedups
    held = np.unique(labels)
    best = np.asarray([slow[labels == c].mean(axis=0).argmin() for c in held])
    found: NDArray[np.intp] = best[cluster.assign(centroids[held], asked)]
    return found


def _clustering(
    vectors: NDArray[np.float32], labels: NDArray[np.intp], centroids: Floats
) -> Clustering:
    quality = cluster.quality(vectors, labels, centroids)
    sizes = np.asarray(quality.sizes, dtype=float)
    return Clustering(
        prompts=len(vectors),
        clusters=len(centroids),
        silhouette=quality.silhouette,
        davies_bouldin=quality.davies_bouldin,
        calinski_harabasz=quality.calinski_harabasz,
        inertia=quality.inertia,
        mean_size=float(sizes.mean()),
        size_deviation=float(sizes.std()),
    )


def _rates(profile: Profile, paired: Paired, parameters: Mapping[str, int]) -> dict[str, Rate]:
    """Return the rates of the prompts that count for speed under every method."""
    [temperature] = {row.temperature for row in profile.rows}
    found = {}
    for column, name in enumerate(paired.methods):
        cells = [profile.cells[prompt, temperature, name] for prompt in paired.prompt_ids]
        rates = [cell.output_tokens / cell.seconds for cell in cells]
        least, most = np.percentile(rates, [5, 95])
        found[name] = Rate(
            parameters=parameters.get(name),
            tokens_per_s=float(np.mean(rates)),
            deviation=float(np.std(rates)),
            least=float(least),
            most=float(most),
            slower=float((paired.speedups[:, column] < 1.0).mean()),
        )
    return found


def _map(
    profile: Profile, vectors: NDArray[np.float32], labels: NDArray[np.intp], centroids: Floats
) -> tuple[tuple[Spot, ...], tuple[Spot, ...]]:
    from sklearn.decomposition import PCA

    plane = PCA(n_components=2, random_state=0).fit(vectors)
    spots = tuple(
        Spot(x=float(x), y=float(y), cluster=int(c), label=prompt.text[:SHOWN])
        for (x, y), c, prompt in zip(plane.transform(vectors), labels, profile.prompts, strict=True)
    )
    middles = tuple(
        Spot(x=float(x), y=float(y), cluster=c, label=f"cluster {c}")
        for c, (x, y) in enumerate(plane.transform(centroids.astype(vectors.dtype)))
    )
    return spots, middles


def _oracle(
    profile: Profile, portfolio: Sequence[str], prompts: Sequence[str], speedups: Floats, seed: int
) -> Mean:
    """Return the speedup of each prompt's fastest method.

    With several repeats the method is chosen in one and timed in the others.
    """
    split = oracle_rates(_pinned(profile, portfolio, prompts))
    if split is None:
        return mean_of(speedups.max(axis=1), seed)
    [temperature] = {row.temperature for row in profile.rows}
    plain = [profile.cells[prompt, temperature, profile.baseline] for prompt in prompts]
    over = [
        speedup(cell.output_tokens / cell.seconds, rate)
        for cell, rate in zip(plain, split, strict=True)
    ]
    return mean_of(np.asarray(over), seed)


def _pinned(profile: Profile, portfolio: Sequence[str], prompts: Sequence[str]) -> Floats:
    """Rates [p, m, r] of the repeats that every prompt has under every method."""
    rates: dict[tuple[str, str], list[float]] = {}
    for row in sorted(profile.rows, key=lambda row: row.repeat):
        if row.output_tokens >= MIN_TOKENS:
            rate = tokens_per_second(row.output_tokens, row.seconds)
            rates.setdefault((row.prompt_id, row.method), []).append(rate)
    repeats = min(len(rates[prompt, name]) for prompt in prompts for name in portfolio)
    return np.asarray([[rates[prompt, name][:repeats] for name in portfolio] for prompt in prompts])
