"""What a routing table expects of prompts, as a service's requests bring it to the engine."""

from collections.abc import Sequence
from pathlib import Path

from ops.measure.embedding import embed
from ops.measure.prompts import Prompt
from router import belief, cluster
from router.embed import Encoder
from router.regression import foretold_of
from router.table import load_table
from schemas import RouterConfig, temperature_band
from workers.bundle import load_bundle
from workers.chat_template import encode_chat


def expectations(
    routing: Path,
    config: RouterConfig,
    bundle: Path,
    prompts: Sequence[Prompt],
    temperature: float,
) -> tuple[str, dict[str, dict[str, float]]]:
    """The table's fit id; by prompt id and method, accepted tokens of a draft. Raises
    RoutingTableError."""
    encoder = Encoder(config.encoder, config.encoder_threads)
    table = load_table(routing, encoder=encoder.info)
    texts = [prompt.text for prompt in prompts]
    vectors = embed(encoder, texts, "prompts")
    labels = cluster.assign(table.centroids, vectors)
    tokenizer = load_bundle(bundle).tokenizer()
    tokens = [
        len(encode_chat(tokenizer, prompt.messages, add_generation_prompt=True))
        for prompt in prompts
    ]
    said = foretold_of(table, vectors, texts, tokens)
    band = temperature_band(temperature)
    return table.fit_id, {
        prompt.id: belief.accepted(table, int(label), band, own)
        for prompt, label, own in zip(prompts, labels, said, strict=True)
    }
