"""`specadapt extend`: methods that were profiled later into a routing table."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.output import emit, table


def extend(
    routing: Annotated[
        Path, typer.Option("--routing", metavar="DIR", help="folder of the routing table")
    ],
    profile: Annotated[
        Path,
        typer.Option(
            "--profile",
            metavar="DIR",
            help="folder of a profile of plain decoding and the new methods",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="folder of the new routing table")
    ],
    config: flags.Config = None,
    methods: flags.Methods = None,
    retrained: Annotated[
        str | None,
        typer.Option("--retrained", metavar="A,B", help="methods whose heads were trained again"),
    ] = None,
    profile_ids: flags.ProfileIds = None,
    json: flags.Json = None,
) -> None:
    """Add methods to a routing table without profiling its other methods again.

    Clusters stay. Methods in --methods that the table already has get new step times and keep their
    acceptance; methods in --retrained get both from the profile. Times are scaled by plain
    decoding, so the profile may come from another machine if drafts cost the same there relative to
    plain steps.

    Example: `specadapt extend --routing bundles/smollm2/routing --profile runs/adaptive
    --out runs/routing`
    """
    from ops.harness.embedding import embed
    from ops.harness.settings import load_config, names
    from ops.tables.profile_store import profiled
    from router import favourites
    from router.embed import Encoder
    from router.fit.edit import extended
    from router.table import load_table, save_table

    settings = load_config(config).router
    encoder = Encoder(settings.encoder, settings.encoder_threads)
    before = load_table(routing, encoder=encoder.info)
    measured = profiled(profile, profile_ids)
    vectors = embed(encoder, [p.text for p in measured.prompts], "profiled prompts")
    again = names(retrained) if retrained else ()
    made = extended(before, measured, vectors, names(methods) if methods else None, again)
    save_table(made, out)
    seconds = favourites.typical_seconds(made)
    plain = seconds[:, made.methods.index(measured.baseline)]
    by_method = {
        name: {
            "predicted_speedup": float((plain / seconds[:, index]).mean()),
            "favourite_of": sum(row.count(name) for row in made.assignment),
        }
        for index, name in enumerate(made.methods)
    }
    figures = {
        "fit_id": made.fit_id,
        "extended": before.fit_id,
        "methods": by_method,
        "default_method": made.default_method,
    }
    rows = [[name, *figure.values()] for name, figure in by_method.items()]
    columns = ["method", f"predicted over {measured.baseline}", "favourite of"]
    emit(figures, lambda: [table(f"{out}: fit {made.fit_id}", columns, rows)], json)
