"""`specadapt routing promote`: what was learned, as a routing table of its own."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit


def promote(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="the new routing table")],
    config: flags.Config = None,
    snapshot: Annotated[
        int | None, typer.Option("--snapshot", min=1, help="[default: the state in force]")
    ] = None,
    json: flags.Json = None,
) -> None:
    """Make a routing table of what a service has learned, for others to begin with.

    Reads the stored state that the configuration names (`feedback.state_uri`); the service may run.

    Example: `specadapt routing promote --config my.yaml --out bundles/smollm2/routing`
    """
    from deployments.artifacts import served_table
    from deployments.configuration import resolved
    from deployments.learning.history import History
    from deployments.learning.state_store import StateStore
    from ops.cli.settings import served_config
    from router.adaptation import Adaptation
    from router.promotion import promoted
    from router.table import save_table

    settings = resolved(served_config(config))
    table = served_table(settings)
    feedback = settings.feedback
    uri = f"{feedback.state_uri}/{table.fit_id}"
    if snapshot is None:
        state = None
        with suppress(FileNotFoundError):
            state = StateStore(uri).read()
        if state is None:
            raise InputError(f"feedback.state_uri: nothing was learned yet in {uri}")
    else:
        kept = History(uri, feedback.snapshot_seconds, feedback.snapshots_kept)
        try:
            state = {"seen": [], **kept.state(snapshot)}
        except LookupError as error:
            raise InputError(f"--snapshot: {error}") from error
    learned = Adaptation.restore(table, settings.router, state).table
    made = promoted(learned)
    save_table(made, out)
    figures = {"routing": str(out), **made.provenance["promoted_from"], "promoted": made.fit_id}
    emit(
        figures,
        lambda: [f"{out}: fit {made.fit_id}, of version {learned.version} of {learned.fit_id}"],
        json,
    )
