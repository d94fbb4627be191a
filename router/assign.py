"""The routing table of a profile: which method each cluster gets."""

import hashlib
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from router import predict, steps
from router.evidence import labels_of, profiled_acceptance
from router.profile import Measured, Profile, ProfileError, prompt_key
from router.speedup import PLAIN_METHODS, harmonic_mean
from schemas import TEMPERATURE_BANDS, EncoderInfo, Objective, RoutingTable

Floats = NDArray[np.float64]

DEFAULT_CONTEXTS = (64, 256, 1024)


class AssignError(ValueError):
    """A profile that cannot be assigned from; the message names the field or the fix."""


def build_table(
    profile: Profile,
    vectors: NDArray[np.float32],
    centroids: Floats,
    encoder: EncoderInfo,
    *,
    methods: Sequence[str] | None = None,
    lossy: bool = False,
    objective: Objective = "speedup",
    default_method: str | None = None,
    clustered_prompts: Collection[str] = (),
) -> RoutingTable:
    """The routing table of a profile whose prompts have the vectors [n, d], in their order.

    A cluster's favourite is the method with the least predicted seconds for the cluster's typical
    prompt at batch 1, from the same two factors that serve: step time is pooled over clusters, so
    a cluster with few prompts borrows what does not depend on prompts; the assignment by measured
    paired speedups is kept beside it in the provenance. Only lossless methods, unless `lossy`.
    `clustered_prompts`: texts that the centroids were fitted on, which `evaluate` must not see.
    Raises AssignError or ProfileError.
    """
    if len(vectors) != len(profile.prompts):
        raise AssignError(f"{len(vectors)} vectors for {len(profile.prompts)} profiled prompts")
    meta = profile.meta
    names = tuple(
        m
        for m in (meta.methods if methods is None else methods)
        if lossy or meta.lossless.get(m, False)
    )
    if not names:
        raise AssignError("methods: none is lossless; measure one, or admit lossy methods")
    label_of = labels_of(profile, vectors, centroids)
    k, m = len(centroids), len(names)
    output, output_count, prompt_tokens = _lengths(profile, label_of, k)
    tokens, counts = profiled_acceptance(profile, names, label_of, objective, output, {})
    step_grid, step_count, batches, contexts = _step_grid(profile, names)
    speedup, speedup_count = paired_speedups(profile, names, label_of, k)
    keys = {prompt_key(p.text) for p in profile.prompts}
    keys |= {prompt_key(text) for text in clustered_prompts}
    table = RoutingTable(
        fit_id=_fit_id(profile, centroids, encoder, names, objective),
        encoder=encoder,
        measured_under=meta.measured_under,
        methods=names,
        settings_hashes={n: meta.settings_hashes[n] for n in names},
        lossless={n: meta.lossless[n] for n in names},
        objective=objective,
        default_method=names[0],
        assignment=((names[0],) * len(TEMPERATURE_BANDS),) * k,
        centroids=centroids,
        acceptance_tokens=tokens,
        acceptance_steps=counts,
        live_tokens=np.zeros_like(tokens),
        live_steps=np.zeros_like(tokens),
        batch_grid=batches,
        context_grid=contexts,
        step_seconds=step_grid,
        step_count=step_count,
        live_step_ratio=np.ones(m),
        live_batch_ratio=np.ones(m),
        live_step_weight=np.zeros(m),
        prefill_seconds=prefill_lines(profile, names),
        live_prefill_ratio=np.ones(m),
        live_cached_share=np.zeros(m),
        output_tokens=output,
        output_count=output_count,
        live_output=np.zeros((k, 2)),
        live_answers=np.zeros(k),
        speedup=speedup,
        speedup_count=speedup_count,
        regression=np.zeros((m, 0)),
        regression_range=np.zeros((m, 2)),
        regression_mean=np.zeros((k, m)),
        provenance={
            "prompt_tokens": [round(float(p), 2) for p in prompt_tokens],
            "profiled_prompts": len(profile.prompts),
            "clustered_prompts": len(clustered_prompts) or len(profile.prompts),
            "baseline": profile.baseline,
            "by_measured_speedup": _by_speedup(names, speedup, speedup_count),
            "profile": meta.provenance,
            "prompts": sorted(keys),
        },
    )
    return with_favourites(table, default_method)


def with_favourites(table: RoutingTable, default_method: str | None) -> RoutingTable:
    """The table with each cluster's fastest method by temperature band, and the default or else the
    fastest over all that was profiled.

    Raises AssignError for a default that is not in the table.
    """
    cost = predict.typical_seconds(table)
    if table.objective == "speedup":
        plain = next((table.methods.index(n) for n in PLAIN_METHODS if n in table.methods), None)
        cost = cost / (cost.mean(axis=1) if plain is None else cost[:, plain])[:, None]
    weights = np.maximum(table.output_count, 1e-9)
    often = table.acceptance_tokens.sum(axis=(0, 1)) + 1e-9
    overall = table.methods[int((weights[:, None] * (cost @ often)).sum(axis=0).argmin())]
    if default_method is not None and default_method not in table.methods:
        raise AssignError(f"default_method: {default_method} is not in {', '.join(table.methods)}")
    # A cluster that no profiled prompt fell into is predicted from the methods' means alone.
    return table.model_copy(
        update={
            "assignment": predict.fastest(table),
            "default_method": default_method or overall,
        }
    )


def step_samples(
    profile: Profile, names: Sequence[str], batches: Sequence[int]
) -> list[steps.Sample]:
    """Step seconds by method (its place in `names`), batch and context: those that were measured of
    batches, and those of the answers, at the nearest of `batches`.

    Acceptance knows no batch size. Where steps of a larger batch emit fewer tokens than those of
    the smallest one, because less is drafted there, they are entered as so much longer ones.
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
            samples.append(steps.Sample(method, row.batch, row.context, seconds, row.count))
    for (_, _, name), cell in profile.cells.items():
        decode_steps = cell.target_steps - 1.0
        if name in names and decode_steps >= 1.0 and cell.decode_seconds > 0.0:
            context = cell.prompt_tokens + cell.output_tokens / 2.0
            seconds = cell.decode_seconds / decode_steps
            batch = min(batches, key=lambda b: abs(np.log(b / cell.mean_batch)))
            samples.append(steps.Sample(names.index(name), batch, context, seconds, decode_steps))
    return samples


def _step_grid(
    profile: Profile, names: Sequence[str]
) -> tuple[Floats, Floats, tuple[int, ...], tuple[int, ...]]:
    batches = tuple(sorted({1} | {s.batch for s in profile.steps}))
    contexts = tuple(sorted({s.context for s in profile.steps})) or DEFAULT_CONTEXTS
    samples = step_samples(profile, names, batches)
    seconds_grid, count = steps.grid(samples, len(names), batches, contexts)
    return seconds_grid, count, batches, contexts


def prefill_lines(profile: Profile, names: Sequence[str]) -> Floats:
    """A constant and seconds per prompt token [m, 2], neither below 0."""
    fits = np.zeros((len(names), 2))
    for i, name in enumerate(names):
        cells = [c for (_, _, m), c in profile.cells.items() if m == name]
        if not cells:
            raise ProfileError(f"methods: {name} has no rows in the profile")
        design = np.asarray([[1.0, c.prompt_tokens] for c in cells])
        fits[i] = steps.nonnegative_fit(design, np.asarray([c.prefill_seconds for c in cells]))
    return fits


def _lengths(profile: Profile, label_of: dict[str, int], k: int) -> tuple[Floats, Floats, Floats]:
    """Mean output tokens [k], prompts behind them [k], mean prompt tokens [k] by cluster."""
    measured: list[tuple[int, Measured]] = [
        (label_of[p], c) for (p, _, name), c in profile.cells.items() if name == profile.baseline
    ]
    if not measured:
        raise ProfileError(f"methods: {profile.baseline}, the baseline, has no rows in the profile")
    labels = np.asarray([label for label, _ in measured])
    output = np.asarray([c.output_tokens for _, c in measured])
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
    """Harmonic means of paired speedups over the baseline [k, m], and the prompts behind them."""
    paired = profile.paired(names)
    labels = np.asarray([label_of[p] for p in paired.prompt_ids])
    means, counts = np.zeros((k, len(names))), np.zeros((k, len(names)))
    for c in range(k):
        inside = paired.speedups[labels == c]
        if len(inside):
            means[c] = [harmonic_mean(inside[:, i]) for i in range(len(names))]
            counts[c] = len(inside)
    return means, counts


def _by_speedup(names: Sequence[str], speedup: Floats, count: Floats) -> list[str | None]:
    return [
        names[int(s.argmax())] if n.any() else None for s, n in zip(speedup, count, strict=True)
    ]


def _fit_id(
    profile: Profile,
    centroids: Floats,
    encoder: EncoderInfo,
    names: Sequence[str],
    objective: Objective,
) -> str:
    """Twelve hex digits over all that a table is made of."""
    digest = hashlib.sha256(np.asarray(centroids, dtype=np.float32).tobytes())
    for part in (encoder, profile.meta, *profile.rows, *profile.steps):
        digest.update(part.model_dump_json().encode())
    digest.update(",".join(names).encode())
    if objective != "speedup":  # ids of tables from before there was another one stay
        digest.update(objective.encode())
    return digest.hexdigest()[:12]
