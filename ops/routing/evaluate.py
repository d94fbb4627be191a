"""`specadapt evaluate`: what routing is worth on prompts it was not fitted on."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.output import emit, table


def evaluate(
    routing: Annotated[Path, typer.Option("--routing", metavar="DIR", help="routing table")],
    profile: Annotated[Path, typer.Option("--profile", metavar="DIR", help="other prompts")],
    config: flags.Config = None,
    methods: flags.Methods = None,
    profile_ids: flags.ProfileIds = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Route a profile's prompts by a table and compare with the best single method.

    Example: `specadapt evaluate --routing bundles/demo/routing --profile runs/other`
    """
    from ops.cli.settings import load_config, names
    from ops.measure.embedding import embed
    from ops.routing.profiled import profiled
    from router.embed import Encoder
    from router.evaluate import evaluate as judge
    from router.table import load_table

    settings = load_config(config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    fitted = load_table(routing, encoder=encoder.info)
    measured = profiled(profile, profile_ids)
    vectors = embed(encoder, [p.text for p in measured.prompts], "prompts")
    result = asdict(judge(fitted, measured, vectors, names(methods) if methods else None, seed))
    name, speedup = result.pop("best_single"), result.pop("best_single_speedup")
    figures = result | {
        "best_single": {"name": name, "speedup": speedup},
        "routed_over_best_single_ci95": list(result["routed_over_best_single_ci95"]),
        "measured_under": measured.meta.measured_under.model_dump(mode="json"),
        "fit_id": fitted.fit_id,
    }
    low, high = figures["routed_over_best_single_ci95"]
    rows = [[m, value, figures["shares"][m]] for m, value in figures["harmonic_mean"].items()]
    rows += [["routed", figures["routed"], 1.0]]
    rows += [["acceptance known", figures["known_acceptance"], None]]
    rows += [["per-prompt oracle", figures["per_prompt_oracle"], None]]
    title = (
        f"{figures['prompts']} prompts: routed over {name} "
        f"{figures['routed_over_best_single']:.3f} (95%: {low:.3f} to {high:.3f})"
    )
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
    emit(
        figures,
        lambda: [
            table(title, columns, rows),
            table("By temperature (95% interval)", ["temperature", *by_temperature.values()], warm),
        ],
        json,
    )
