"""`specadapt bench geometry`: step times of model shapes, before anything is trained."""

from typing import Annotated

import typer

from ops import flags

DEFAULT_SHAPES = "320x14,384x12,256x8,192x2,256x1"


def bench_geometry(
    shapes: Annotated[
        str, typer.Option("--shapes", metavar="WIDTHxDEPTH,...", help="Llama shapes to time")
    ] = DEFAULT_SHAPES,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    json: flags.Json = None,
) -> None:
    """Time the engine's own forward on random weights: batches, verified tokens, heads.

    Example: `specadapt bench geometry --shapes 320x14,192x2 --threads 1`
    """
