"""`specadapt plot`: the figures of a load test as SVG."""

from pathlib import Path
from typing import Annotated

import typer

from ops.harness.boundary import InputError


def plot(
    figures: Annotated[Path, typer.Argument(metavar="JSON", help="file that --json wrote")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="folder for the plots")],
) -> None:
    """Draw the figures of `loadtest` as SVG.

    Example: `specadapt plot loadtest.json --out plots`
    """
    from schemas.json_files import read_json

    read = read_json(figures)
    try:
        from ops.load.loadtest.plots import draw
    except ImportError as error:
        raise InputError(f"plots need `pip install 'specadapt[plots]'`: {error}") from error
    if not (isinstance(read, dict) and "timeline" in read):
        raise InputError(f"{figures}: not written by loadtest")
    try:
        drawn = list(draw(read, out, figures.stem))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{figures}: written by another version; run the command again "
            f"({type(error).__name__}: {error})"
        ) from error
    for file in drawn:
        typer.echo(file)
