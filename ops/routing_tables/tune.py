"""`specadapt tune`: a routing table for a model from prompts like those it will get."""

import json as json_format
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, say, table, with_interval

MOST_CLUSTERS, PROMPTS_PER_CLUSTER = 20, 12
"""As in the shipped tables: a cluster with fewer prompts says little."""


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
    from ops.routing_tables.evaluate import evaluate
    from ops.routing_tables.fit import fit
    from ops.routing_tables.profile import profile

    bundle = None if model is None else bundle_of(model, say)
    chosen = [prompt.id for prompt in select(prompts, limit=limit)]
    held, fitted = chosen[::4], [one for i, one in enumerate(chosen) if i % 4]
    clusters = min(MOST_CLUSTERS, len(fitted) // PROMPTS_PER_CLUSTER)
    if clusters < 2:
        least = 3 * PROMPTS_PER_CLUSTER
        raise InputError(f"--prompts: {len(chosen)} are too few for a table; give {least} or more")
    measured, routing = out / "profile", out / "routing"
    lists = {"fitted": fitted, "held": held}
    files = {name: out / f"{name}_ids.txt" for name in lists}
    with redirect_stdout(sys.stderr):  # the commands' own tables
        say(f"profiling {len(chosen)} prompts under every method")
        profile(measured, bundle, config, prompts=prompts, limit=limit, max_tokens=64)
        for name, ids in lists.items():
            files[name].write_text("\n".join(ids) + "\n", encoding="utf-8")
        kind = flags.Predictor.regression
        written = {name: out / f"{name}.json" for name in ("fit", "evaluate")}
        fit(
            *(measured, routing, clusters, kind, config),
            profile_ids=files["fitted"],
            json=written["fit"],
        )
        evaluate(*(routing, measured, config), profile_ids=files["held"], json=written["evaluate"])
    found, judged = (json_format.loads(file.read_text()) for file in written.values())
    kept = ("prompts", "best_single", "routed", "routed_over_best_single")
    interval = "routed_over_best_single_ci95"
    figures = {name: judged[name] for name in (*kept, interval)}
    figures |= {"assignment": found["assignment"], "routing": str(routing)}
    rows = [
        ["held-out prompts", judged["prompts"]],
        ["best single method", judged["best_single"]["name"]],
        ["its speedup", judged["best_single"]["speedup"]],
        ["routed", judged["routed"]],
        ["routed over the best single method", with_interval(judged[kept[-1]], judged[interval])],
    ]
    fix = f"serve with `router: {{routing: {routing}}}` in the configuration"
    emit(figures, lambda: [table("What routing gains", ["", ""], rows), fix], json)
