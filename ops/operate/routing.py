"""`specadapt routing`: a decision explained, and learned states of a service."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, table

SECONDS = 30.0

Key = Annotated[
    str,
    typer.Option(
        "--key",
        envvar="SPECADAPT_ADMIN_KEY",
        show_default=False,
        help="admin key, made by `specadapt keys create --admin`",
    ),
]


def explain(  # noqa: PLR0913 - its parameters are flags
    prompt: Annotated[str, typer.Option("--prompt", help="the user's message")],
    bundle: flags.Bundle = None,
    routing: flags.Routing = None,
    config: flags.Config = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    json: flags.Json = None,
) -> None:
    """Explain the routing decision for a prompt.

    Example: `specadapt routing explain --prompt "Translate to French: good morning"`
    """
    from ops.common.output import quiet_transformers
    from ops.common.prompts import parse
    from ops.common.settings import load_config, resolve
    from router import cluster
    from router.constraints import Constraints
    from router.embed import Encoder
    from router.policy import choose
    from router.prompt import Features, deviations, predictions
    from router.table import load_table
    from workers.bundle import load_bundle
    from workers.chat_template import encode_chat

    quiet_transformers()
    asked, settings = parse({"prompt": prompt}), load_config(config)
    folder, encoder = resolve(settings, bundle).bundle, Encoder(settings.router.encoder)
    known = load_table(routing or settings.router.routing or folder / "routing", encoder.info)
    tokenizer = load_bundle(folder).tokenizer()
    tokens = len(encode_chat(tokenizer, asked.messages, add_generation_prompt=True))
    vector = encoder.embed([asked.text])
    [label] = cluster.assign(known.centroids, vector)
    [predicted] = predictions(known, vector, [asked.text], [tokens])
    features = Features(tokens, max_tokens, temperature, predicted, int(label))
    # An idle service that explores nothing.
    constraints = Constraints(healthy=frozenset(known.methods), explore=False)
    decision = choose(known, features, (), constraints, settings.router)
    deviation = deviations(known, decision.cluster, decision.predicted_acceptance)
    figures = {
        "cluster": decision.cluster,
        "method": decision.method,
        "ranked": list(decision.ranked),
        "reason": decision.reason,
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
    emit(figures, lambda: [table(title, columns, ranked)], json)


def history(url: flags.Url = flags.DEFAULT_URL, key: Key = "", json: flags.Json = None) -> None:
    """List the learned states that a service can return to, newest first.

    Example: `specadapt routing history --url http://127.0.0.1:8000`
    """
    _emit(_asked("GET", f"{url}/admin/routing/history", key), json)


def rollback(
    snapshot: Annotated[
        int | None,
        typer.Argument(
            metavar="[NUMBER]", min=1, help="number of the snapshot  [default: the newest]"
        ),
    ] = None,
    url: flags.Url = flags.DEFAULT_URL,
    key: Key = "",
    json: flags.Json = None,
) -> None:
    """Return to an earlier learned state. The current one is kept; a second call undoes the first.

    Example: `specadapt routing rollback 7`
    """
    body = {} if snapshot is None else {"snapshot": snapshot}
    found = _asked("POST", f"{url}/admin/routing/rollback", key, body)
    _emit({"snapshots": [found]}, json, "Active again")


def reset(url: flags.Url = flags.DEFAULT_URL, key: Key = "", json: flags.Json = None) -> None:
    """Discard what the service has learned. The current state is kept for `rollback`.

    Example: `specadapt routing reset`
    """
    _emit(_asked("POST", f"{url}/admin/routing/reset", key), json)


def _asked(
    method: str, url: str, key: str, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Call the service's API and return its JSON. Raises InputError with the service's message."""
    import httpx

    from workers.http_clients import client

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with client(url, headers=headers, timeout=SECONDS) as service:
            response = service.request(method, url, json=body)
        answer: dict[str, Any] = response.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise InputError(f"--url: no service answers at {url} ({error})") from error
    if response.is_success:
        return answer
    field = {401: "--key: ", 403: "--key: "}.get(response.status_code, "")
    raise InputError(f"{field}{answer.get('error', {}).get('message', response.status_code)}")


def _emit(
    figures: dict[str, Any], json: Any, title: str = "Learned states, the newest first"
) -> None:
    told = ("number", "at", "occasion", "version", "clusters")
    rows = [
        [*map(one.get, told), ", ".join(f"{n} {count}" for n, count in one["favourites"].items())]
        for one in figures["snapshots"]
    ]
    columns = ["number", "at", "kept before", "version", "clusters", "preferred"]
    emit(figures, lambda: [table(title, columns, rows)], json)


def export(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="folder of the new routing table")
    ],
    config: flags.Config = None,
    snapshot: Annotated[
        int | None,
        typer.Option(
            "--snapshot", min=1, help="number of the snapshot  [default: the current state]"
        ),
    ] = None,
    json: flags.Json = None,
) -> None:
    """Write what a service has learned as a routing table.

    Reads the stored state that the configuration names (`feedback.state_uri`). The service may be
    running.

    Example: `specadapt routing export --config my.yaml --out bundles/smollm2/routing`
    """
    from deployments.artifacts import served_table
    from deployments.configuration import resolved
    from deployments.learning.state_store import StateStore
    from ops.common.settings import served_config
    from router.fit.unfitted import promoted
    from router.learner import Learner
    from router.table import save_table

    settings = resolved(served_config(config))
    table = served_table(settings)
    feedback = settings.feedback
    store = StateStore(uri := f"{feedback.state_uri}/{table.fit_id}")
    try:
        state = store.read() if snapshot is None else store.snapshot(snapshot)
    except LookupError as error:
        raise InputError(f"--snapshot: {error}") from error
    if state is None:
        raise InputError(f"feedback.state_uri: no learned state in {uri}")
    learned = Learner.restore(table, state).table
    made = promoted(learned)
    save_table(made, out)
    figures = {"routing": str(out), **made.provenance["promoted_from"], "promoted": made.fit_id}
    emit(
        figures,
        lambda: [f"{out}: fit {made.fit_id}, of version {learned.version} of {learned.fit_id}"],
        json,
    )
