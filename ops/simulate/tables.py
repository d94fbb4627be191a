"""The routing table that a world's router begins with, and the numbers of one on disk."""

import numpy as np

from ops.simulate.speeds import Speeds, named
from ops.simulate.world import PLAIN, Acceptance, Base, Clusters, World
from router import acceptance, predict
from router.fit.unfitted import unfitted_table
from router.preferred import with_preferred
from schemas import EncoderInfo, MeasuredUnder, MethodSpec, RoutingTable, temperature_band

PROMPTS = 240
"""Profiled prompts that a table's evidence stands for; at least two are in each cluster."""
TEMPERATURES = (0.0, 0.3, 0.8)
"""Profiled temperatures, one in each of the router's bands. The clients' replaces that of its
band."""
CONTEXTS = (64, 2048)
LENGTHS = (80, 160)
"""Tokens of the profiled prompts."""


def believed_table(world: World, base: Base) -> RoutingTable:
    """Return the table of a profile without noise that says what the world's router believes.

    Each cluster has its own vector, which all its prompts have. A world without a table has one
    cluster, and methods about which nothing is known.
    """
    k, m = len(base.clusters.weights), len(base.methods)
    specs = [
        MethodSpec(name=m, drafter="none" if m == PLAIN else m, lossless=True, source="a world")
        for m in base.methods
    ]
    under = MeasuredUnder(machine="world", device="cpu", dtype="float32", threads=1, bundle="world")
    encoder = EncoderInfo(name="world", dimension=k, sha256="world")
    if world.believed is None:
        return unfitted_table(specs, encoder, under)
    table = unfitted_table(specs, encoder, under, clusters=k)
    weights = np.asarray(base.clusters.weights)
    prompts = np.maximum(2.0, np.round(PROMPTS * weights / weights.sum()))
    tokens, steps = np.zeros((2, k, m, len(TEMPERATURES)))
    temperatures = list(TEMPERATURES)
    temperatures[temperature_band(world.clients.temperature)] = world.clients.temperature
    believed = named(world.believed, base, world.clients)
    for band, temperature in enumerate(temperatures):
        clients = world.clients.model_copy(update={"temperature": temperature})
        speeds = Speeds(base, clients, believed)
        for i, speed in enumerate(speeds.methods.values()):
            if temperature == 0.0 or not speed.only_greedy:
                tokens[:, i, band] = acceptance.ANSWER_TOKENS * prompts
                steps[:, i, band] = tokens[:, i, band] / speed.acceptance
    batches = sorted({1}.union(*base.step_seconds.values()))
    seconds = [[[speeds.step({name: b})] * len(CONTEXTS) for b in batches] for name in base.methods]
    prefills = [
        np.polyfit(LENGTHS, [speeds.prefill(name, n) for n in LENGTHS], 1)[::-1]
        for name in base.methods
    ]
    profiled = {
        "centroids": np.eye(k),
        "acceptance_tokens": tokens,
        "acceptance_steps": steps,
        "batch_grid": tuple(batches),
        "context_grid": CONTEXTS,
        "step_seconds": np.asarray(seconds),
        "step_count": np.full_like(seconds, 200.0),
        "prefill_seconds": np.maximum(0.0, prefills),
        "output_tokens": np.asarray(base.output_tokens),
        "output_count": prompts * len(TEMPERATURES),
        "provenance": {"prompt_tokens": [float(np.mean(LENGTHS))] * k},
    }
    return with_preferred(RoutingTable.model_validate(dict(table) | profiled), None)


def base_of(table: RoutingTable) -> Base:
    """Return the numbers of a routing table as the base of worlds."""
    accepted = acceptance.acceptance(table)
    methods = list(enumerate(table.methods))
    greedy, high = (
        {name: tuple(accepted[:, m, band].tolist()) for m, name in methods} for band in (0, 2)
    )
    return Base(
        methods=table.methods,
        clusters=Clusters(weights=tuple(np.maximum(table.output_count, 1e-3).tolist())),
        acceptance=Acceptance(greedy=greedy, high=high),
        step_seconds={
            name: {b: predict.step_seconds(table, m, b, CONTEXTS[0]) for b in table.batch_grid}
            for m, name in methods
        },
        prefill_seconds={
            name: {n: predict.measured_prefill(table, m, n) for n in LENGTHS} for m, name in methods
        },
        output_tokens=tuple(table.output_tokens.tolist()),
    )
