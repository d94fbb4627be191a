"""Making a routing table from a profile: which method each cluster gets."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from router import cluster
from router.acceptance import ANSWER_TOKENS, learns_acceptance
from router.fit.profile import Profile, ProfileError, prompt_key
from router.fit.speedup import harmonic_mean
from router.preferred import with_preferred
from schemas import TEMPERATURE_BANDS, EncoderInfo, RoutingTable, temperature_band

# scikit-learn is imported where a grid is fitted: see router.cluster.

Floats = NDArray[np.float64]

DEFAULT_CONTEXTS = (64, 256, 1024)


class AssignError(ValueError):
    """A table cannot be made from this profile; the message names the field or the fix."""


@dataclass(frozen=True)
class TableOptions:
    """What a routing table is made for.

    methods: default: all of the profile. lossy: admit methods that are not lossless.
    default_method: default: the fastest over all prompts. clustered_prompts: texts that the
    centroids were fitted on, which `evaluate` must not see.
    """

    methods: Sequence[str] | None = None
    lossy: bool = False
    default_method: str | None = None
    clustered_prompts: Collection[str] = ()


def build_table(
    profile: Profile,
    vectors: NDArray[np.float32],
    centroids: Floats,
    encoder: EncoderInfo,
    options: TableOptions = TableOptions(),
) -> RoutingTable:
    """Make a routing table from a profile.

    vectors: the prompts' [n, d], in their order. centroids: [k, d]. A cluster's preferred method is
    the method with the least predicted seconds for its typical prompt at batch 1, from the same two
    factors that serve. Step time is pooled over clusters, so a cluster with few prompts borrows
    what does not depend on prompts. Raises AssignError, ProfileError, or ValueError for an unknown
    default method.
    """
    if len(vectors) != len(profile.prompts):
        raise AssignError(f"{len(vectors)} vectors for {len(profile.prompts)} profiled prompts")
    meta = profile.meta
    names = tuple(
        m
        for m in (meta.methods if options.methods is None else options.methods)
        if options.lossy or meta.lossless.get(m, False)
    )
    if not names:
        raise AssignError("methods: none is lossless; measure one, or admit lossy methods")
    label_of = labels_of(profile, vectors, centroids)
    k = len(centroids)
    output, output_count, prompt_tokens = _lengths(profile, label_of, k)
    tokens, counts = profiled_acceptance(profile, names, label_of, k, {})
    step_grid, step_count, batches, contexts = _step_grid(profile, names)
    speedup, speedup_count = paired_speedups(profile, names, label_of, k)
    keys = {prompt_key(p.text) for p in profile.prompts}
    keys |= {prompt_key(text) for text in options.clustered_prompts}
    table = RoutingTable(
        fit_id=_fit_id(profile, centroids, encoder, names),
        encoder=encoder,
        measured_under=meta.measured_under,
        methods=names,
        settings_hashes={n: meta.settings_hashes[n] for n in names},
        lossless={n: meta.lossless[n] for n in names},
        default_method=names[0],
        assignment=((names[0],) * len(TEMPERATURE_BANDS),) * k,
        centroids=centroids,
        acceptance_tokens=tokens,
        acceptance_steps=counts,
        batch_grid=batches,
        context_grid=contexts,
        step_seconds=step_grid,
        step_count=step_count,
        prefill_seconds=prefill_lines(profile, names),
        output_tokens=output,
        output_count=output_count,
        speedup=speedup,
        speedup_count=speedup_count,
        provenance={
            "prompt_tokens": [round(float(p), 2) for p in prompt_tokens],
            "profiled_prompts": len(profile.prompts),
            "clustered_prompts": len(options.clustered_prompts) or len(profile.prompts),
            "baseline": profile.baseline,
            "profile": meta.provenance,
            "prompts": sorted(keys),
        },
    )
    return with_preferred(table, options.default_method)


@dataclass(frozen=True)
class Sample:
    """Mean seconds of `count` steps of one method at a batch size and context length."""

    method: int
    batch: float
    context: float
    seconds: float
    count: float


def step_samples(profile: Profile, names: Sequence[str], batches: Sequence[int]) -> list[Sample]:
    """Return step times by method (its index in `names`), batch and context.

    They are the profile's step times and those of its responses, at the nearest of `batches`.
    Acceptance knows no batch size: steps of a larger batch that emit fewer tokens than those of the
    smallest one, because less is drafted, are entered with proportionally more seconds.
    """
    alone: dict[tuple[str, int], float] = {}
    for row in sorted(profile.steps, key=lambda row: -row.batch):
        if row.tokens is not None:
            alone[row.method, row.context] = row.tokens
    samples = []
    for row in profile.steps:
        if row.method in names:
            fewer = alone[row.method, row.context] / row.tokens if row.tokens else 1.0
            method, seconds = names.index(row.method), row.seconds * fewer
            samples.append(Sample(method, row.batch, row.context, seconds, row.count))
    for (_, _, name), cell in profile.cells.items():
        decode_steps = cell.target_steps - 1.0
        if name in names and decode_steps >= 1.0 and cell.decode_seconds > 0.0:
            context = cell.prompt_tokens + cell.output_tokens / 2.0
            seconds = cell.decode_seconds / decode_steps
            batch = min(batches, key=lambda b: abs(np.log(b / cell.mean_batch)))
            samples.append(Sample(names.index(name), batch, context, seconds, decode_steps))
    return samples


def _step_grid(
    profile: Profile, names: Sequence[str]
) -> tuple[Floats, Floats, tuple[int, ...], tuple[int, ...]]:
    batches = tuple(sorted({1} | {s.batch for s in profile.steps}))
    contexts = tuple(sorted({s.context for s in profile.steps})) or DEFAULT_CONTEXTS
    samples = step_samples(profile, names, batches)
    seconds_grid, count = grid(samples, len(names), batches, contexts)
    return seconds_grid, count, batches, contexts


def prefill_lines(profile: Profile, names: Sequence[str]) -> Floats:
    """Fit prefill time by a constant and seconds per prompt token [m, 2], neither below 0."""
    fits = np.zeros((len(names), 2))
    for i, name in enumerate(names):
        cells = [c for (_, _, m), c in profile.cells.items() if m == name]
        if not cells:
            raise ProfileError(f"methods: {name} has no rows in the profile")
        design = np.asarray([[1.0, c.prompt_tokens] for c in cells])
        fits[i] = nonnegative_fit(design, np.asarray([c.prefill_seconds for c in cells]))
    return fits


def _lengths(profile: Profile, label_of: dict[str, int], k: int) -> tuple[Floats, Floats, Floats]:
    """Return each cluster's mean output tokens, prompts behind them, and mean prompt tokens [k]."""
    measured = [
        (label_of[p], c) for (p, _, name), c in profile.cells.items() if name == profile.baseline
    ]
    if not measured:
        raise ProfileError(f"methods: {profile.baseline}, the baseline, has no rows in the profile")
    labels = np.asarray([label for label, _ in measured])
    output = np.asarray([float(c.output_tokens) for _, c in measured])
    prompt = np.asarray([float(c.prompt_tokens) for _, c in measured])
    count = np.bincount(labels, minlength=k).astype(np.float64)
    safe = np.maximum(count, 1.0)
    mean_output = np.bincount(labels, output, minlength=k) / safe
    mean_prompt = np.bincount(labels, prompt, minlength=k) / safe
    return (
        np.where(count > 0, mean_output, output.mean()),
        count,
        np.where(count > 0, mean_prompt, prompt.mean()),
    )


def paired_speedups(
    profile: Profile, names: Sequence[str], label_of: dict[str, int], k: int
) -> tuple[Floats, Floats]:
    """Return harmonic means of paired speedups over the baseline, and their prompts [k, m]."""
    paired = profile.paired(names)
    labels = np.asarray([label_of[p] for p in paired.prompt_ids])
    means, counts = np.zeros((k, len(names))), np.zeros((k, len(names)))
    for c in range(k):
        inside = paired.speedups[labels == c]
        if len(inside):
            means[c] = [harmonic_mean(inside[:, i]) for i in range(len(names))]
            counts[c] = len(inside)
    return means, counts


def _fit_id(
    profile: Profile,
    centroids: Floats,
    encoder: EncoderInfo,
    names: Sequence[str],
) -> str:
    """Return twelve hex digits over everything that a table is made of."""
    digest = hashlib.sha256(np.asarray(centroids, dtype=np.float32).tobytes())
    for part in (encoder, profile.meta, *profile.rows, *profile.steps):
        digest.update(part.model_dump_json().encode())
    digest.update(",".join(names).encode())
    return digest.hexdigest()[:12]


def acceptance_evidence(
    output_tokens: float, target_steps: float, deviation: float = 0.0
) -> tuple[float, float]:
    """Return the tokens and steps that one response adds to its cell, without the prefill's.

    deviation: predicted distance of the prompt's log acceptance from its cell's (`router.prompt`);
    the response counts with the steps that it would have taken at deviation 0.

    A long response counts as one of ANSWER_TOKENS. Otherwise a few answers that loop up to their
    limit, where copying works best, would outvote the rest of their cluster.
    """
    tokens, steps = max(0.0, output_tokens - 1.0), max(0.0, target_steps - 1.0)
    scale = ANSWER_TOKENS / max(tokens, ANSWER_TOKENS)
    return scale * tokens, scale * steps * math.exp(deviation)


def labels_of(profile: Profile, vectors: NDArray[np.float32], centroids: Floats) -> dict[str, int]:
    """Return the cluster of each of the profile's prompts by id; vectors [n, d] in their order."""
    labels = cluster.assign(centroids, vectors)
    return {p.id: int(c) for p, c in zip(profile.prompts, labels, strict=True)}


def profiled_acceptance(
    profile: Profile,
    names: Sequence[str],
    label_of: dict[str, int],
    clusters: int,
    deviations: Mapping[str, Floats],
) -> tuple[Floats, Floats]:
    """Return the tokens and steps [k, m, t] that the profile's answers add.

    deviations: [m] by prompt id, where there are any. None counts as lower than one token a step,
    the least there can be.
    """

    def count(deviations: Mapping[str, Floats], lowest: Floats) -> tuple[Floats, Floats]:
        tokens = np.zeros((clusters, len(names), len(TEMPERATURE_BANDS)))
        steps = np.zeros_like(tokens)
        for (prompt_id, temperature, name), cell in profile.cells.items():
            lossless = profile.meta.lossless.get(name, False)
            if name not in names or not learns_acceptance(cell.looping, lossless):
                continue
            index = (label_of[prompt_id], names.index(name), temperature_band(temperature))
            own = deviations.get(prompt_id)
            added = acceptance_evidence(
                cell.output_tokens,
                cell.target_steps,
                0.0 if own is None else max(float(own[index[1]]), float(lowest[index])),
            )
            tokens[index] += added[0]
            steps[index] += added[1]
        return tokens, steps

    tokens, steps = count({}, np.zeros(()))
    if not deviations:
        return tokens, steps
    cells = np.divide(tokens, steps, out=np.ones_like(tokens), where=steps > 0.0)
    return count(deviations, -np.log(np.maximum(1.0, cells)))


def grid(
    samples: Sequence[Sample], methods: int, batches: Sequence[int], contexts: Sequence[int]
) -> tuple[Floats, Floats]:
    """Return seconds and counts [m, B, C]; seconds never fall with batch size or context length.

    A cell holds the mean of the samples nearest to it. Empty cells get a cost that is bilinear in
    batch and context with coefficients of at least 0, fitted to the method's samples. Raises
    ValueError for a method without samples.
    """
    seconds = np.zeros((methods, len(batches), len(contexts)))
    counts = np.zeros_like(seconds)
    for s in samples:
        b = int(np.abs(np.log(np.asarray(batches) / s.batch)).argmin())
        c = int(np.abs(np.log(np.asarray(contexts) / s.context)).argmin())
        seconds[s.method, b, c] += s.seconds * s.count
        counts[s.method, b, c] += s.count
    np.divide(seconds, counts, out=seconds, where=counts > 0)

    cells = [_features(b, c) for b in batches for c in contexts]
    for m in range(methods):
        own = [s for s in samples if s.method == m]
        if not own:
            raise ValueError(f"steps: method {m} of {methods} has no step time measured")
        # Least squares on relative errors.
        design = np.asarray([_features(s.batch, s.context) for s in own])
        measured = np.asarray([[s.seconds] for s in own])
        cost = nonnegative_fit(design / measured, np.ones(len(own)))
        model = (np.asarray(cells) @ cost).reshape(counts[m].shape)
        filled = np.where(counts[m] > 0, seconds[m], model)
        seconds[m] = _monotone(filled, counts[m] + 0.1)
    return seconds, counts


def _features(batch: float, context: float) -> list[float]:
    return [1.0, batch, context / 1000.0, batch * context / 1000.0]


def nonnegative_fit(design: Floats, target: Floats) -> Floats:
    """Return least-squares coefficients [p], none below 0, of design [n, p] for target [n]."""
    from sklearn.linear_model import LinearRegression

    model = LinearRegression(positive=True, fit_intercept=False).fit(design, target)
    return np.asarray(model.coef_, dtype=np.float64)


def _monotone(values: Floats, weights: Floats) -> Floats:
    """Return the nearest surface [B, C] that does not fall along either axis."""
    from sklearn.isotonic import isotonic_regression

    smooth = values.copy()
    for _ in range(10):
        for axis in (0, 1):
            lines, line_weights = np.moveaxis(smooth, axis, -1), np.moveaxis(weights, axis, -1)
            fitted = [
                isotonic_regression(y, sample_weight=w)
                for y, w in zip(lines, line_weights, strict=True)
            ]
            smooth = np.moveaxis(np.asarray(fitted), -1, axis)
    # What alternating leaves is far below measurement noise.
    rising: Floats = np.maximum.accumulate(np.maximum.accumulate(smooth, axis=0), axis=1)
    return rising
