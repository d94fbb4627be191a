"""`specadapt config show`: a configuration with everything that it leaves out."""

from pathlib import Path
from typing import Annotated

import typer


def show(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="[default: what `serve` starts with]")
    ] = None,
) -> None:
    """Print a configuration as the service sees it: defaults filled in, the bundle's own methods.

    Example: `specadapt config show my.yaml`
    """
    import yaml

    from ops.cli.settings import served_config
    from ops.config.effective import effective
    from ops.config.files import read_config

    config = served_config(None) if file is None else read_config(file)
    typer.echo(yaml.safe_dump(effective(config), sort_keys=False), nl=False)
