"""The routing table that a world's router begins with, and the numbers of one on disk."""

from collections.abc import Iterator
from math import floor

import numpy as np

from ops.simulate.speeds import Speeds, named
from ops.simulate.world import PLAIN, Acceptance, Base, Clusters, World
from router import evidence, predict
from router.fit.assign import build_table
from router.fit.profile import Profile
from router.fit.unfitted import unfitted_table
from schemas import (
    TEMPERATURE_BANDS,
    EncoderInfo,
    MeasuredUnder,
    MethodSpec,
    RoutingTable,
    temperature_band,
)
from schemas.profile import ProfileMeta, ProfileRow, Prompt, StepRow

PROFILED_PROMPTS = 240
"""Prompts of the profile behind a world's table; at least two are in each cluster."""
PROFILED_LENGTHS = (80, 160)
"""Their tokens, in turn."""
PROFILED_TEMPERATURES = (0.0, 0.3, 0.8)
"""One in each of the router's bands. The clients' temperature replaces that of its band."""
CONTEXTS = (64, 2048)

UNDER = MeasuredUnder(machine="world", device="cpu", dtype="float32", threads=1, bundle="world")


def vectors_of(base: Base) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return the vector [k, k] of each cluster's prompts, which is its centroid as well."""
    return np.eye(len(base.clusters.weights), dtype=np.float32)


def believed_table(world: World, base: Base) -> RoutingTable:
    """Fit a table on a profile without noise that says what the world's router believes.

    A world without a table has one cluster, and methods about which nothing is known.
    """
    vectors = vectors_of(base)
    encoder = EncoderInfo(name="world", dimension=len(vectors), sha256="world")
    specs = [
        MethodSpec(
            name=name, drafter="none" if name == PLAIN else name, lossless=True, source="a world"
        )
        for name in base.methods
    ]
    if world.believed is None:
        return unfitted_table(specs, encoder, UNDER)
    meta = ProfileMeta(
        measured_under=UNDER,
        methods=base.methods,
        settings_hashes={spec.name: spec.settings_hash() for spec in specs},
        lossless=dict.fromkeys(base.methods, True),
        max_tokens=world.clients.max_tokens,
    )
    sizes = [
        max(2, round(PROFILED_PROMPTS * weight / sum(base.clusters.weights)))
        for weight in base.clusters.weights
    ]
    prompts = [
        (k, Prompt(id=f"{k}-{i}", text=f"{k}-{i}"))
        for k, size in enumerate(sizes)
        for i in range(size)
    ]
    rows = tuple(_rows(world, base, sizes))
    speeds = _believed(world, base, 0.0)
    steps = tuple(
        StepRow(method=m, batch=b, context=c, seconds=speeds.step({m: b}), count=200)
        for m in base.methods
        for b in base.step_seconds[m]
        for c in CONTEXTS
    )
    profile = Profile(meta, tuple(prompt for _, prompt in prompts), rows, steps)
    of_prompts = vectors[[k for k, _ in prompts]]
    return build_table(profile, of_prompts, vectors.astype(np.float64), encoder)


def _believed(world: World, base: Base, temperature: float) -> Speeds:
    """Return the speeds that the table says for a temperature, without a limit of tokens."""
    factors = named(world.believed or (), Speeds.of(base, world.clients))
    open_ended = {"temperature": temperature, "max_tokens": round(max(base.output_tokens)) + 1}
    return Speeds.of(base, world.clients.model_copy(update=open_ended)).under(factors)


def _rows(world: World, base: Base, sizes: list[int]) -> Iterator[ProfileRow]:
    """Yield the answers of all methods to the profile's prompts."""
    asked = dict(zip(range(len(TEMPERATURE_BANDS)), PROFILED_TEMPERATURES, strict=True))
    asked[temperature_band(world.clients.temperature)] = world.clients.temperature
    factors = named(world.believed or (), Speeds.of(base, world.clients))
    only_greedy = {one.method for one in factors if one.only_greedy}
    for temperature in asked.values():
        speeds = _believed(world, base, temperature)
        for m, method in enumerate(base.methods):
            if temperature > 0.0 and method in only_greedy:
                continue
            step = speeds.step({method: 1})
            prefills = [speeds.prefill(method, length) for length in PROFILED_LENGTHS]
            for k, size in enumerate(sizes):
                mean, accepted = float(speeds.tokens[k]), float(speeds.acceptance[m, k])
                for i in range(size):
                    # Whole tokens whose mean is the cluster's.
                    tokens = max(1, floor((i + 1) * mean) - floor(i * mean))
                    prefill = prefills[i % len(prefills)]
                    decode = (tokens - 1) / accepted * step
                    yield ProfileRow(
                        prompt_id=f"{k}-{i}",
                        method=method,
                        temperature=temperature,
                        prompt_tokens=PROFILED_LENGTHS[i % len(prefills)],
                        output_tokens=tokens,
                        target_steps=1.0 + (tokens - 1) / accepted,
                        seconds=prefill + decode,
                        prefill_seconds=prefill,
                        decode_seconds=decode,
                    )


def base_of(table: RoutingTable) -> Base:
    """Return the numbers of a routing table as the base of worlds."""
    accepted = evidence.acceptance(table)
    methods = list(enumerate(table.methods))
    return Base(
        methods=table.methods,
        clusters=Clusters(weights=tuple(np.maximum(table.output_count, 1e-3).tolist())),
        acceptance=Acceptance(
            greedy={name: tuple(accepted[:, m, 0].tolist()) for m, name in methods},
            high={name: tuple(accepted[:, m, -1].tolist()) for m, name in methods},
        ),
        step_seconds={
            name: {b: predict.step_seconds(table, m, b, CONTEXTS[0]) for b in table.batch_grid}
            for m, name in methods
        },
        prefill_seconds={
            name: {n: predict.measured_prefill(table, m, n) for n in PROFILED_LENGTHS}
            for m, name in methods
        },
        output_tokens=tuple(table.output_tokens.tolist()),
    )
