"""The clusters of traced prompts, and the methods that a routing table sends them to."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ops.harness.boundary import InputError
from ops.harness.embedding import embed
from ops.tables.bounds_figures import Answer
from router import cluster
from router.embed import Encoder
from router.fit.profile import prompt_key
from router.fit.speedup import BASELINE
from router.table import load_table
from schemas import RouterConfig, temperature_band


def with_clusters(
    answers: Sequence[Answer],
    texts: Mapping[str, str],
    routing: Path,
    settings: RouterConfig,
    temperature: float,
) -> list[Answer]:
    """The answers with the cluster of their prompt's text and its favourite at this temperature.

    Raises InputError where the table was fitted on one of the prompts, or routes to a method that
    was not traced.
    """
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    table = load_table(routing, encoder=encoder.info)
    fitted = set(table.provenance.get("prompts", ()))
    seen = [a.prompt_id for a in answers if prompt_key(texts[a.prompt_id]) in fitted]
    if seen:
        raise InputError(
            f"--routing: the table was fitted on {len(seen)} of {len(answers)} prompts, such as "
            f"{seen[0]}"
        )
    band = temperature_band(temperature)
    favourites = [row[band] for row in table.assignment]
    strange = set(favourites) - answers[0].kept.keys() - {BASELINE}
    if strange:
        raise InputError(f"--methods: the table routes to {min(strange)}, which is not among them")
    vectors = embed(encoder, [texts[a.prompt_id] for a in answers], "prompts")
    labels = cluster.assign(table.centroids, vectors)
    return [
        replace(answer, cluster=int(label), routed=favourites[label])
        for answer, label in zip(answers, labels, strict=True)
    ]
