"""`specadapt profile`, `fit`, `evaluate` and `tune`: routing tables of measured prompts. And
`export-encoder`, for tables in another encoder's vectors."""

import asyncio
import logging
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, progress, quiet_transformers, say, table, with_interval

MOST_CLUSTERS, PROMPTS_PER_CLUSTER = 20, 12
"""As in the shipped tables: a cluster with fewer prompts says little."""
RATIO = "routed_over_best_single"
INTERVAL = f"{RATIO}_ci95"


def profile(  # noqa: PLR0913 - its parameters are flags
    out: Annotated[Path, flags.option("--out", "folder of the profile", "DIR")],
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    limit: flags.Limit = None,
    max_tokens: flags.MaxTokens = flags.DEFAULT_MAX_TOKENS,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    concurrency: flags.Concurrency = 1,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure every prompt under every method, plain decoding included, with the serving settings.

    Rows are written as they are measured; run the command again to continue.

    Example: `specadapt profile --out runs/profile --limit 600`
    """
    from ops.common.prompts import select
    from ops.common.settings import load_config, resolve, with_baseline, with_dtype, with_places
    from ops.routing_tables.profile_runs import ProfilePlan, run_profile
    from router.fit.speedup import harmonic_mean

    asked = with_dtype(resolve(load_config(config), bundle, methods, dtype, threads))
    setup = with_places(with_baseline(asked), concurrency)
    chosen = select(prompts, ids, limit, seed)
    plan = ProfilePlan(setup, chosen, max_tokens, temperature, concurrency, seed)
    with progress() as bar:
        measured = asyncio.run(run_profile(plan, out, bar))
    paired = measured.paired()
    columns = zip(paired.methods, paired.speedups.T, strict=True)
    speedups = {name: harmonic_mean(column) for name, column in columns}
    figures = {
        "rows": len(measured.rows),
        "methods": list(measured.meta.methods),
        "baseline": measured.baseline,
        "harmonic_mean_speedup": speedups,
        "prompts": len(paired.prompt_ids),
        "settings": measured.meta.model_dump(mode="json"),
    }
    title = f"{figures['rows']} rows, {figures['prompts']} prompts count for speed"
    heads = ["method", f"speedup over {measured.baseline}"]
    emit(figures, lambda: [table(title, heads, [*speedups.items()])], json)


def fit(  # noqa: PLR0913 - its parameters are flags
    profile: Annotated[Path, flags.option("--profile", "folder of the profile", "DIR")],
    out: Annotated[Path, flags.option("--out", "folder of the routing table", "DIR")],
    clusters: Annotated[int, flags.option("--clusters", "number of clusters", min=2)] = 10,
    predictor: Annotated[
        Literal["clusters", "regression"],
        flags.option(
            "--predictor",
            "predictor of acceptance: the prompt's cluster (clusters), or the cluster "
            "corrected by the prompt's vector and features (regression)",
        ),
    ] = "clusters",
    config: flags.Config = None,
    methods: flags.Methods = None,
    prompts: Annotated[
        list[Path] | None,
        flags.option(
            "--prompts",
            "prompts to cluster, as JSON Lines; repeatable  [default: the profile's]",
            "FILE",
        ),
    ] = None,
    ids: flags.Ids = None,
    profile_ids: flags.ProfileIds = None,
    limit: flags.Limit = None,
    lossy: Annotated[bool, flags.option("--lossy", "allow methods that are not lossless")] = False,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> dict[str, Any]:
    """Fit a routing table: embed prompts, cluster them, and assign methods to clusters.

    Example: `specadapt fit --profile runs/profile --clusters 10 --out bundles/demo/routing`
    """
    import numpy as np

    from ops.common.prompts import select
    from ops.common.settings import load_config, names
    from ops.routing_tables.profile_store import profiled
    from router import cluster
    from router.drift import Reference
    from router.embed import Encoder
    from router.fit.assign import TableOptions, build_table
    from router.fit.regression import corrected
    from router.table import save_table
    from schemas import TEMPERATURE_BANDS

    routing = load_config(config).router
    measured = profiled(profile, profile_ids)
    encoder = Encoder(routing.encoder)
    vectors = encoder.embed([p.text for p in measured.prompts])
    texts = [p.text for p in select(prompts, ids, limit, seed)] if prompts else []
    clustered = encoder.embed(texts) if texts else vectors
    centroids = cluster.fit(clustered, clusters, seed)
    options = TableOptions(
        methods=names(methods) if methods else None,
        lossy=lossy,
        default_method=routing.default_method,
        clustered_prompts=texts,
    )
    made = build_table(measured, vectors, centroids, encoder.info, options)
    if predictor == "regression":
        made = corrected(made, measured, vectors, routing.default_method)
    labels = cluster.assign(centroids, clustered)
    distances = Reference.of_fit(centroids, clustered, labels).state()
    made = made.model_copy(update={"provenance": {**made.provenance, "distances": distances}})
    save_table(made, out)
    sizes = np.bincount(labels, minlength=clusters).tolist()
    figures: dict[str, Any] = {
        "clusters": len(made.centroids),
        "predictor": "regression" if made.features else "clusters",
        "sizes": sizes,
        "assignment": [dict(zip(TEMPERATURE_BANDS, row, strict=True)) for row in made.assignment],
        "speedup": [dict(zip(made.methods, row, strict=True)) for row in made.speedup.tolist()],
        "profiled_prompts": made.provenance["profiled_prompts"],
        "clustered_prompts": made.provenance["clustered_prompts"],
        "default_method": made.default_method,
        "fit_id": made.fit_id,
        "silhouette": cluster.silhouette(clustered, labels),
    }
    rows = [[k, sizes[k], *by_band] for k, by_band in enumerate(made.assignment)]
    title = f"{out}: silhouette {figures['silhouette']:.3f}, fit {made.fit_id}"
    emit(figures, lambda: [table(title, ["cluster", "prompts", *TEMPERATURE_BANDS], rows)], json)
    return figures


def evaluate(  # noqa: PLR0913 - its parameters are flags
    routing: Annotated[Path, flags.option("--routing", "folder of the routing table", "DIR")],
    profile: Annotated[
        Path,
        flags.option("--profile", "folder of a profile of held-out prompts", "DIR"),
    ],
    config: flags.Config = None,
    methods: flags.Methods = None,
    profile_ids: flags.ProfileIds = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> dict[str, Any]:
    """Route a profile's prompts by a table and compare with the best single method.

    Example: `specadapt evaluate --routing bundles/demo/routing --profile runs/other`
    """
    from ops.common.settings import load_config, names
    from ops.routing_tables.profile_store import profiled
    from router.embed import Encoder
    from router.fit.evaluate import evaluate as judge
    from router.table import load_table

    encoder = Encoder(load_config(config).router.encoder)
    fitted = load_table(routing, encoder=encoder.info)
    measured = profiled(profile, profile_ids)
    vectors = encoder.embed([p.text for p in measured.prompts])
    portfolio = names(methods) if methods else None
    result = asdict(judge(fitted, measured, vectors, portfolio, seed))
    name, speedup = result.pop("best_single"), result.pop("best_single_speedup")
    figures = result | {
        "best_single": {"name": name, "speedup": speedup},
        INTERVAL: list(result[INTERVAL]),
        "measured_under": measured.meta.measured_under.model_dump(mode="json"),
        "fit_id": fitted.fit_id,
    }
    rows = [[m, value, figures["shares"][m]] for m, value in figures["harmonic_mean"].items()]
    rows += [["routed", figures["routed"], 1.0]]
    rows += [["copy or not (one bit)", figures["copy_or_not"], None]]
    rows += [["per-prompt oracle", figures["per_prompt_oracle"], None]]
    over = with_interval(figures[RATIO], figures[INTERVAL])
    title = f"{figures['prompts']} prompts: routed over {name} {over}"
    columns = ["method", f"speedup over {figures['baseline']}", "share of prompts"]
    by_temperature = {
        "prompts": "prompts",
        "routed": "routed",
        "best_single": "best single",
        RATIO: "routed over best single",
        f"{RATIO}_low": "low",
        f"{RATIO}_high": "high",
    }
    warm = [
        [temperature, *(values[key] for key in by_temperature)]
        for temperature, values in figures["by_temperature"].items()
    ]
    shown = [
        table(title, columns, rows),
        table("By temperature (95% interval)", ["temperature", *by_temperature.values()], warm),
    ]
    emit(figures, lambda: shown, json)
    return figures


def tune(
    out: Annotated[Path, flags.option("--out", "folder of the table and the profile", "DIR")],
    model: flags.Model = None,
    config: flags.Config = None,
    prompts: flags.Prompts = None,
    limit: flags.Limit = None,
    json: flags.Json = None,
) -> None:
    """Profile every method on prompts, fit a routing table on three quarters of them, and say what
    routing gains on the others.

    Run it again to continue a profile that was interrupted.

    Example: `specadapt tune model.gguf --prompts prompts.jsonl --out runs/mine`
    """
    from ops.common.prompts import select
    from ops.models.bundle.sources import bundle_of

    bundle = None if model is None else bundle_of(model, say)
    chosen = [prompt.id for prompt in select(prompts, limit=limit)]
    lists = {"fitted": [one for i, one in enumerate(chosen) if i % 4], "held": chosen[::4]}
    clusters = min(MOST_CLUSTERS, len(lists["fitted"]) // PROMPTS_PER_CLUSTER)
    if clusters < 2:
        least = 3 * PROMPTS_PER_CLUSTER
        raise InputError(f"--prompts: {len(chosen)} are too few for a table; give {least} or more")
    measured, routing = out / "profile", out / "routing"
    files = {name: out / f"{name}_ids.txt" for name in lists}
    with redirect_stdout(sys.stderr):  # the commands' own tables
        say(f"profiling {len(chosen)} prompts under every method")
        profile(measured, bundle, config, prompts=prompts, limit=limit, max_tokens=64)
        for name, ids in lists.items():
            files[name].write_text("\n".join(ids) + "\n", encoding="utf-8")
        found = fit(measured, routing, clusters, "regression", config, profile_ids=files["fitted"])
        judged = evaluate(routing, measured, config, profile_ids=files["held"])
    kept = ("prompts", "best_single", "routed", RATIO, INTERVAL)
    figures = {name: judged[name] for name in kept}
    figures |= {"assignment": found["assignment"], "routing": str(routing)}
    rows = [
        ["held-out prompts", judged["prompts"]],
        ["best single method", judged["best_single"]["name"]],
        ["its speedup", judged["best_single"]["speedup"]],
        ["routed", judged["routed"]],
        ["routed over the best single method", with_interval(judged[RATIO], judged[INTERVAL])],
    ]
    fix = f"serve with `router: {{routing: {routing}}}` in the configuration"
    emit(figures, lambda: [table("What routing gains", ["", ""], rows), fix], json)


def export_encoder(
    out: Annotated[Path, flags.option("--out", "folder of the exported encoder", "DIR")],
    json: flags.Json = None,
) -> None:
    """Export all-MiniLM-L6-v2 to quantised ONNX.

    Serve with it by `router.encoder: DIR` or SPECADAPT_ENCODER, and fit the routing table with it.

    Example: `specadapt export-encoder --out runs/minilm`
    """
    from router.fit.encoder_export import export_encoder as export

    quiet_transformers()
    logging.disable(logging.WARNING)  # the quantiser's advice about models larger than this one
    try:
        info = export(out)
    finally:
        logging.disable(logging.NOTSET)
    figures = {"path": str(out), **info.model_dump(mode="json")}
    emit(figures, lambda: [f"{info.name} ({info.dimension} dimensions) is at {out}"], json)
