"""`specadapt bench prediction`: clusters, regressions and trees as foretellers of acceptance."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit
from ops.cli.output import table as shown


def bench_prediction(
    routing: Annotated[
        Path, typer.Option("--routing", metavar="DIR", help="the table whose clusters are used")
    ],
    profile: Annotated[
        Path, typer.Option("--profile", metavar="DIR", help="the answers learned from")
    ],
    held: Annotated[Path, typer.Option("--held", metavar="DIR", help="the answers foretold")],
    config: flags.Config = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Learn acceptance from one profile in several forms, and choose by each on another one.

    Example: `specadapt bench prediction --routing bundles/demo/routing --profile runs/profile
    --held runs/held`
    """
    from ops.cli.settings import load_config
    from ops.measure.embedding import embed
    from ops.measure.machine import describe_machine
    from ops.prediction.answers import answers_of
    from ops.prediction.figures import compared
    from router import cluster
    from router.assign import build_table
    from router.embed import Encoder
    from router.evaluate import refuse_other_conditions
    from router.profile import Profile, prompt_key
    from router.table import check_table, load_table

    settings = load_config(config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    fitted = load_table(routing, encoder=encoder.info)
    learned, other = Profile.load(profile), Profile.load(held)
    seen = {prompt_key(prompt.text) for prompt in learned.prompts}
    if any(prompt_key(prompt.text) in seen for prompt in other.prompts):
        raise InputError(f"--held: {held} has prompts of {profile}; profile other prompts")
    vectors = embed(encoder, [p.text for p in learned.prompts], "prompts learned from")
    made = build_table(
        learned,
        vectors,
        fitted.centroids,
        encoder.info,
        methods=fitted.methods,
        lossy=True,
        objective=fitted.objective,
    )
    refuse_other_conditions(made.measured_under, other.meta.measured_under)
    check_table(made, settings_hashes=other.meta.settings_hashes)
    known = answers_of(learned, vectors, cluster.assign(made.centroids, vectors), made)
    vectors = embed(encoder, [p.text for p in other.prompts], "prompts foretold")
    asked = answers_of(other, vectors, cluster.assign(made.centroids, vectors), made)
    forms = compared(made, known, asked, other.meta.max_tokens, seed)
    figures = {
        "learned_from": len(known.labels),
        "foretold": len(asked.labels),
        "objective": made.objective,
        "forms": forms,
        "settings": {
            **describe_machine(),
            "measured_under": other.meta.measured_under.model_dump(mode="json"),
            "clusters": len(made.centroids),
            "seed": seed,
        },
    }
    rows = [
        [name, found["log_acceptance_rmse"], temperature, at["routed_over_best_single"], *interval]
        for name, found in forms.items()
        for temperature, at in found["by_temperature"].items()
        for interval in [[at[f"routed_over_best_single_{end}"] for end in ("low", "high")]]
    ]
    columns = ["form", "error of log acceptance", "temperature", "over best single", "low", "high"]
    title = f"{figures['foretold']} answers, learned from {figures['learned_from']} others"
    emit(figures, lambda: [shown(title, columns, rows)], json)
