"""`specadapt config diff`: what a change of configuration changes."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.output import emit, table


def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE")],
    after: Annotated[Path, typer.Argument(metavar="AFTER")],
    json: flags.Json = None,
) -> None:
    """The fields in which two configurations differ, defaults filled in.

    Example: `specadapt config diff serve.yaml new.yaml`
    """
    from ops.config.effective import effective, fields
    from ops.config.files import read_config

    old, new = (fields(effective(read_config(file))) for file in (before, after))
    changed = {
        name: {"before": old.get(name), "after": new.get(name)}
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    }
    rows = [[name, str(found["before"]), str(found["after"])] for name, found in changed.items()]
    emit(
        {"changed": changed},
        lambda: [table("What changes", ["field", "before", "after"], rows)],
        json,
    )
