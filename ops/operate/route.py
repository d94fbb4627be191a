"""`specadapt route`: one decision explained."""

from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table

NEAREST = 5


def route(
    prompt: Annotated[str, typer.Option("--prompt", help="the user's message")],
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    json: flags.Json = None,
) -> None:
    """Explain the routing decision for a prompt.

    Example: `specadapt route --prompt "Translate to French: good morning"`
    """
    from ops.harness.prompts import parse
    from ops.harness.settings import load_config
    from ops.tables.local_router import Router, nearest
    from router.prompt import Features, explained

    asked = parse({"prompt": prompt})
    router = Router.load(load_config(config), bundle, routing)
    features = Features(router.prompt_tokens(asked), max_tokens, temperature)
    decision = router.decide(asked.text, features)
    examples = nearest(router, asked.text, NEAREST)
    deviation = explained(router.table, decision.cluster, decision.foretold)
    figures = {
        "cluster": decision.cluster,
        "method": decision.method,
        "ranked": list(decision.ranked),
        "reason": decision.reason,
        "nearest_prompts": examples,
        "predicted_seconds": decision.predicted_seconds,
        "deviation": deviation,
        "fit_id": decision.fit_id,
    }
    title = f"Cluster {decision.cluster}: {decision.method} ({decision.reason})"
    columns = ["method", "predicted seconds"]
    columns += ["log acceptance over its cluster's"] if deviation else []
    ranked = [
        [name, decision.predicted_seconds.get(name), *([deviation[name]] if deviation else [])]
        for name in decision.ranked
    ]
    near = [[e["text"][:80], e["domain"], e["similarity"]] for e in examples]
    emit(
        figures,
        lambda: [
            table(title, columns, ranked),
            table("Nearest known prompts", ["prompt", "domain", "cosine"], near),
        ],
        json,
    )
