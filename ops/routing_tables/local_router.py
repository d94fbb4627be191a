"""The router as the ingress runs it, for commands that call it directly."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from ops.common.output import quiet_transformers
from ops.common.prompts import Prompt
from ops.common.settings import resolve
from router import cluster
from router.constraints import Constraints
from router.embed import Encoder
from router.policy import choose
from router.prompt import Features, predictions
from router.table import load_table
from schemas import AppConfig, Decision, RouterConfig, RoutingTable
from workers.bundle import load_bundle
from workers.chat_template import encode_chat

SAMPLE_PER_CLUSTER = 5


@dataclass(frozen=True)
class Router:
    """Encoder, table and policy settings; decides for an idle system without exploring."""

    encoder: Encoder
    table: RoutingTable
    config: RouterConfig
    tokenizer: Any

    @classmethod
    def load(cls, config: AppConfig, bundle: Path | None, routing: Path | None) -> Self:
        """Load the router. Raises ValueError if a part is missing or does not fit the others."""
        quiet_transformers()
        setup = resolve(config, bundle)
        encoder = Encoder(config.router.encoder)
        folder = routing or config.router.routing or setup.bundle / "routing"
        table = load_table(folder, encoder=encoder.info)
        return cls(encoder, table, config.router, load_bundle(setup.bundle).tokenizer())

    def decide(self, prompt: Prompt, max_tokens: int, temperature: float) -> Decision:
        """Embed a prompt's text, find its cluster and choose a method."""
        tokens = len(encode_chat(self.tokenizer, prompt.messages, add_generation_prompt=True))
        vector = self.encoder.embed([prompt.text])
        [label] = cluster.assign(self.table.centroids, vector)
        [predicted] = predictions(self.table, vector, [prompt.text], [tokens])
        features = Features(tokens, max_tokens, temperature, predicted, int(label))
        constraints = Constraints(healthy=frozenset(self.table.methods), explore=False)
        return choose(self.table, features, (), constraints, self.config)


def sample_of(
    table: RoutingTable, encoder: Encoder, prompts: Sequence[Prompt]
) -> list[dict[str, str]]:
    """Return the prompts nearest to each centroid, as examples to store with the table."""
    vectors = encoder.embed([prompt.text for prompt in prompts])
    labels = cluster.assign(table.centroids, vectors)
    closeness = (vectors * table.centroids[labels]).sum(axis=1)
    chosen: list[dict[str, str]] = []
    for label in range(len(table.assignment)):
        members = np.flatnonzero(labels == label)
        best = members[np.argsort(-closeness[members], kind="stable")][:SAMPLE_PER_CLUSTER]
        chosen += [{"domain": prompts[i].domain, "text": prompts[i].text} for i in best]
    return chosen


def nearest(router: Router, text: str, count: int) -> list[dict[str, Any]]:
    """Return the table's example prompts that are most similar to a text, by cosine similarity."""
    sample = router.table.provenance.get("sample", [])
    if not sample:
        return []
    vectors = router.encoder.embed([entry["text"] for entry in sample])
    similarity = vectors @ router.encoder.embed([text])[0]
    order = np.argsort(-similarity, kind="stable")[:count]
    return [{**sample[i], "similarity": round(float(similarity[i]), 4)} for i in order]
