"""`specadapt evaluate`: compare routing with single methods on held-out prompts."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.output import emit, table, with_interval

INTERVAL = "routed_over_best_single_ci95"


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
) -> None:
    """Route a profile's prompts by a table and compare with the best single method.

    Example: `specadapt evaluate --routing bundles/demo/routing --profile runs/other`
    """
    from ops.common.settings import load_config, names
    from ops.routing_tables.profile_store import profiled
    from router.embed import Encoder
    from router.fit.evaluate import evaluate as judge
    from router.table import load_table

    settings = load_config(config).router
    encoder = Encoder(settings.encoder)
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
    over = with_interval(*map(figures.get, ("routed_over_best_single", INTERVAL)))
    title = f"{figures['prompts']} prompts: routed over {name} {over}"
    columns = ["method", f"speedup over {figures['baseline']}", "share of prompts"]
    by_temperature = {
        "prompts": "prompts",
        "routed": "routed",
        "best_single": "best single",
        "routed_over_best_single": "routed over best single",
        "routed_over_best_single_low": "low",
        "routed_over_best_single_high": "high",
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
