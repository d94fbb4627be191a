"""`specadapt evaluate`: compare routing with single methods on held-out prompts."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ops.common import flags
from ops.common.output import emit, table, with_interval

if TYPE_CHECKING:
    from schemas import RoutingTable

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

    A table from `fit --predictor regression` is also evaluated with its clusters alone.

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
    predictors = {}
    if fitted.features:
        by_cluster = judge(_clusters_alone(fitted), measured, vectors, portfolio, seed)
        predictors = {"regression": result["routed"], "clusters": by_cluster.routed}
    name, speedup = result.pop("best_single"), result.pop("best_single_speedup")
    figures = result | {
        "best_single": {"name": name, "speedup": speedup},
        INTERVAL: list(result[INTERVAL]),
        "measured_under": measured.meta.measured_under.model_dump(mode="json"),
        "fit_id": fitted.fit_id,
        "predictors": predictors,
        "best_predictor": max(predictors, key=lambda name: predictors[name], default=None),
    }
    rows = [[m, value, figures["shares"][m]] for m, value in figures["harmonic_mean"].items()]
    rows += [["routed", figures["routed"], 1.0]]
    rows += [["copy or not (one bit)", figures["copy_or_not"], None]]
    rows += [["acceptance known", figures["known_acceptance"], None]]
    rows += [["per-prompt oracle", figures["per_prompt_oracle"], None]]
    over = with_interval(*map(figures.get, ("routed_over_best_single", INTERVAL)))
    title = f"{figures['prompts']} prompts: routed over {name} {over}"
    columns = ["method", f"speedup over {figures['baseline']}", "share of prompts"]
    by_temperature = {
        "prompts": "prompts",
        "routed": "routed",
        "best_single": "best single",
        "known_acceptance": "acceptance known",
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
    if predictors:
        title = f"Best predictor: {figures['best_predictor']}"
        shown.append(table(title, ["predictor", columns[1]], [*predictors.items()]))
    emit(figures, lambda: shown, json)


def _clusters_alone(fitted: "RoutingTable") -> "RoutingTable":
    """Return the table without its regression, so that each cluster's cells alone predict."""
    update = {"features": (), "regression": fitted.regression[:, :0]}
    return fitted.model_copy(update=update)
