"""`specadapt bench prediction`: clusters, regressions and trees as foretellers of acceptance."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.numbers import whole_numbers
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
    profile_ids: flags.ProfileIds = None,
    held_ids: Annotated[
        Path | None,
        typer.Option("--held-ids", metavar="FILE", help="only --held's prompts with these ids"),
    ] = None,
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters", metavar="K,K", help="compare these numbers of clusters too: 2,10,100"
        ),
    ] = None,
    kinds: Annotated[
        str, typer.Option("--kinds", metavar="A,B", help="clusterings that --clusters compares")
    ] = "kmeans,minibatch,gaussian,hdbscan",
    config: flags.Config = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Learn acceptance from one profile in several forms, and choose by each on another one.

    With both files of ids one profile may be both. With --clusters also by every clustering of
    --kinds with so many clusters, and how steady their choices are; `specadapt fit --clustering
    KIND --clusters K` makes a table of what pays.

    Example: `specadapt bench prediction --routing bundles/demo/routing --profile runs/profile
    --held runs/held`
    """
    from ops.cli.settings import load_config
    from ops.measure.embedding import embed
    from ops.measure.machine import describe_machine
    from ops.prediction.answers import Learned, answers_of
    from ops.prediction.choices import Split, choices
    from ops.prediction.figures import compared
    from ops.routing.profiled import profiled
    from router import cluster
    from router.assign import build_table
    from router.embed import Encoder
    from router.evaluate import refuse_other_conditions
    from router.profile import prompt_key
    from router.table import check_table, load_table

    sizes = whole_numbers(clusters, "--clusters", 2) if clusters else []
    compared_kinds = _known(kinds)
    settings = load_config(config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    fitted = load_table(routing, encoder=encoder.info)
    learned, other = profiled(profile, profile_ids), profiled(held, held_ids, "--held-ids")
    seen = {prompt_key(prompt.text) for prompt in learned.prompts}
    if any(prompt_key(prompt.text) in seen for prompt in other.prompts):
        raise InputError(f"--held: {held} has prompts of {profile}; profile other prompts")
    vectors = embed(encoder, [p.text for p in learned.prompts], "prompts learned from")
    table_of = partial(
        build_table,
        encoder=encoder.info,
        methods=fitted.methods,
        lossy=True,
        objective=fitted.objective,
    )
    made = table_of(learned, vectors, fitted.centroids)
    refuse_other_conditions(made.measured_under, other.meta.measured_under)
    check_table(made, settings_hashes=other.meta.settings_hashes)
    known = Learned(made, learned, vectors)
    held_vectors = embed(encoder, [p.text for p in other.prompts], "prompts foretold")
    held_labels = cluster.assign(made.centroids, held_vectors)
    asked = answers_of(other, held_vectors, held_labels, made)
    split = Split(learned, vectors, other, held_vectors, table_of, seed)
    forms = compared(known, asked, other.meta.max_tokens, seed)
    figures = {
        "learned_from": len(known.answers.labels),
        "foretold": len(asked.labels),
        "objective": made.objective,
        "forms": forms,
        "choices": choices(split, compared_kinds, sizes, made) if sizes else [],
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
    tables = [shown(title, columns, rows)]
    if figures["choices"]:
        tables.append(_choices_table(figures["choices"]))
    emit(figures, lambda: tables, json)


def _choices_table(found: list[dict[str, Any]]) -> Any:
    columns = ["kind", "clusters", "error of log acceptance", "temperature", "over best single"]
    rows = [
        [
            *(row["kind"], row["clusters"], row["log_acceptance_rmse"], temperature),
            *(at[f"routed_over_best_single{end}"] for end in ("", "_low", "_high")),
            *row["stability"].values(),
        ]
        for row in found
        for temperature, at in row["by_temperature"].items()
    ]
    steady = ["low", "high", "same method", "same clusters"]
    return shown("Clusterings, and forms beside them", [*columns, *steady], rows)


def _known(kinds: str) -> list[str]:
    from ops.cli.settings import names
    from router.clusterings import CLUSTERINGS

    asked = names(kinds, "--kinds")
    strange = [name for name in asked if name not in CLUSTERINGS]
    if strange:
        raise InputError(f"--kinds: no {strange[0]}, only {', '.join(CLUSTERINGS)}")
    return asked
