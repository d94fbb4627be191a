"""What a routing table expects of prompts, as a service's requests bring it to the engine."""

from collections.abc import Sequence
from pathlib import Path

from ops.measure.embedding import embed
from ops.measure.prompts import Prompt
from router import belief, cluster
from router.embed import Encoder
from router.table import load_table
from schemas import RouterConfig, temperature_band


def expectations(
    routing: Path, config: RouterConfig, prompts: Sequence[Prompt], temperature: float
) -> tuple[str, dict[str, dict[str, float]]]:
    """The table's fit id; by prompt id and method, accepted tokens of a draft. Raises
    RoutingTableError."""
    encoder = Encoder(config.encoder, config.encoder_threads)
    table = load_table(routing, encoder=encoder.info)
    vectors = embed(encoder, [prompt.text for prompt in prompts], "prompts")
    labels = cluster.assign(table.centroids, vectors)
    band = temperature_band(temperature)
    return table.fit_id, {
        prompt.id: belief.accepted(table, int(label), band)
        for prompt, label in zip(prompts, labels, strict=True)
    }
