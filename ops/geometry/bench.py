"""`specadapt bench geometry`: step times of model shapes, before anything is trained."""

from typing import Annotated

import typer

from ops.cli import flags
from ops.cli.boundary import InputError
from ops.cli.output import emit, table

DEFAULT_SHAPES = "384x12,320x14,256x8,192x2,192x1"


def bench_geometry(
    shapes: Annotated[
        str, typer.Option("--shapes", metavar="WIDTHxDEPTH,...", help="Llama shapes to time")
    ] = DEFAULT_SHAPES,
    dtype: flags.Dtype = flags.Dtype.bfloat16,
    threads: Annotated[int, typer.Option("--threads", min=1, help="torch threads")] = 1,
    json: flags.Json = None,
) -> None:
    """Time the engine's own forward on random weights: batches, verified tokens, heads.

    Example: `specadapt bench geometry --shapes 320x14,192x2 --threads 1`
    """
    from ops.geometry.runs import measure_geometries
    from ops.measure.machine import describe_machine

    if dtype in (flags.Dtype.auto, flags.Dtype.int8):
        raise InputError(f"--dtype: {dtype.value} is of one target; give bfloat16 or float32")
    measured = measure_geometries(parse_shapes(shapes), threads, dtype.value)
    settings = {**describe_machine(), "dtype": dtype.value, "threads": threads}
    columns = list(measured[0])
    rows = [[row[name] for name in columns] for row in measured]
    figures = {"shapes": measured, "settings": settings}
    emit(figures, lambda: [table("Model shapes", columns, rows)], json)


def parse_shapes(shapes: str) -> list[tuple[int, int]]:
    """Width and depth of each shape in `320x14,192x2`; raises InputError."""
    parsed = []
    for shape in shapes.split(","):
        width, _, depth = shape.strip().partition("x")
        if not (width.isdigit() and depth.isdigit() and int(width) > 0 and int(depth) > 0):
            raise InputError(f"--shapes: {shape.strip()!r} is not WIDTHxDEPTH, such as 320x14")
        parsed.append((int(width), int(depth)))
    return parsed
