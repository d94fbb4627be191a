"""`specadapt bench router`: what a routing decision costs and how faithful the encoder is."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ops.harness import flags
from ops.harness.output import emit, progress, table

if TYPE_CHECKING:
    from ops.tables.local_router import Router

Item = TypeVar("Item")


def bench_router(
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure the time of routing decisions and the accuracy of the exported encoder.

    Here --threads sets the encoder's threads.

    Example: `specadapt bench router --limit 500`
    """
    import numpy as np

    from ops.harness.machine import describe_machine
    from ops.harness.prompts import fingerprint, select
    from ops.harness.settings import load_config
    from ops.tables.local_router import Router
    from router.prompt import Features

    settings = load_config(config)
    chosen = select(prompts, ids, limit, seed)
    router = Router.load(settings, bundle, routing, threads)
    texts = [prompt.text for prompt in chosen]
    features = [Features(router.prompt_tokens(prompt), max_tokens) for prompt in chosen]
    embed_ms = _timed(texts, lambda text: router.encoder.embed([text]), "embedding")
    questions = list(zip(texts, features, strict=True))
    decide_ms = _timed(questions, lambda question: router.decide(*question), "deciding")
    figures = {
        "embed_ms_p50": float(np.percentile(embed_ms, 50)),
        "decide_ms_p50": float(np.percentile(decide_ms, 50)),
        "decide_ms_p99": float(np.percentile(decide_ms, 99)),
        "prompts_per_minute": 60_000 / float(np.mean(decide_ms)),
        **_faithfulness(router, texts),
        "settings": {
            **describe_machine(),
            "encoder": router.encoder.info.model_dump(mode="json"),
            "encoder_threads": threads or settings.router.encoder_threads,
            "fit_id": router.table.fit_id,
            "seed": seed,
            "prompts": {"count": len(chosen), "sha256": fingerprint(chosen)},
        },
    }
    rows = [[name, value] for name, value in figures.items() if name != "settings"]
    emit(figures, lambda: [table("Routing", ["figure", "value"], rows)], json)


def _timed(items: Sequence[Item], work: Callable[[Item], object], label: str) -> list[float]:
    """Milliseconds of each call, one after the other, the first one repeated to warm up."""
    work(items[0])
    milliseconds = []
    with progress() as bar:
        for item in bar.track(items, description=label):
            started = time.perf_counter()
            work(item)
            milliseconds.append((time.perf_counter() - started) * 1e3)
    return milliseconds


def _faithfulness(router: "Router", texts: Sequence[str]) -> dict[str, float]:
    """Cosine to sentence-transformers on the source weights, and how often clusters agree."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from ops.harness.embedding import embed
    from router import cluster
    from router.fit.encoder_export import resolve_source

    model = SentenceTransformer(str(resolve_source()), device="cpu")
    reference = model.encode(
        list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False
    )
    ours = embed(router.encoder, texts, "comparing")
    cosine = (ours * reference).sum(axis=1)
    centroids = router.table.centroids
    agree = cluster.assign(centroids, ours) == cluster.assign(centroids, reference)
    return {
        "reference_cosine_p1": float(np.percentile(cosine, 1)),
        "reference_cosine_min": float(cosine.min()),
        "cluster_agreement": float(agree.mean()),
    }
