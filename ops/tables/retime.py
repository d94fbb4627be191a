"""`specadapt retime`: a profile's answers in the time that a routing table predicts."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness import flags
from ops.harness.boundary import InputError
from ops.harness.output import emit


def retime(
    routing: Annotated[
        Path,
        typer.Option(
            "--routing", metavar="DIR", help="folder of the routing table with the step times"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="folder of the new profile")],
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="DIR", help="folder of the profile")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--traces", metavar="DIR", help="folder of `specadapt trace`, instead of a profile"
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="A,B", help="methods to write  [default: all in the table]"
        ),
    ] = None,
    json: flags.Json = None,
) -> None:
    """Write a profile whose times are those that a routing table predicts.

    Use it for answers that were profiled on another or a busy machine, or only traced: acceptance
    does not depend on the machine. Leave methods that cannot be traced (adaptive) out of --methods.

    Example: `specadapt retime --profile runs/profile --routing bundles/demo/routing
    --out runs/timed`
    """
    from ops.harness.settings import names
    from ops.tables.profile_traces import in_steps
    from router.fit.profile import Profile
    from router.fit.retime import timed_by
    from router.table import load_table, restrict

    given = profile or traces
    if given is None or (profile and traces):
        raise InputError("--profile: name a profile, or a trace with --traces")
    if out.resolve() == given.resolve():
        raise InputError(
            f"--out: {out} is the input profile; name another folder, or its times are lost"
        )
    table = load_table(routing)
    if methods is not None:
        table = restrict(table, names(methods))
    answers = in_steps(given, table.methods) if traces else Profile.load(given)
    made = timed_by(table, answers)
    made.save(out)
    figures = {
        "rows": len(made.rows),
        "methods": list(made.meta.methods),
        "timed_by": table.fit_id,
        "measured_under": table.measured_under.model_dump(mode="json"),
    }
    text = f"{out}: {len(made.rows)} answers in the time of fit {table.fit_id}"
    emit(figures, lambda: [text], json)
