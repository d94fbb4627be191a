"""`specadapt bundle import`: make a bundle from a published model."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags
from ops.common.output import emit, say


def import_model(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SRC",
            help="GGUF file, Hugging Face folder, or bundle whose target is in a package",
        ),
    ],
    out: Annotated[
        Path | None,
        flags.option("--out", "folder of the new bundle  [default: bundles/<name of SRC>]", "DIR"),
    ] = None,
    json: flags.Json = None,
) -> None:
    """Make a bundle from a GGUF file or a Hugging Face folder.

    Does nothing if the bundle exists. The target of a bundle that names a packaged model goes to
    the user's cache.

    Example: `specadapt bundle import SmolLM2-135M-Instruct.Q4_1.gguf --out bundles/mine`
    """
    from ops.models.bundle.sources import imported

    # elsewhere than at a terminal a refusal is the only line
    made = imported(source, out, say if sys.stderr.isatty() else lambda _: None)
    lines = [f"{made['folder']}: {made['parameters'] / 1e6:.0f} M parameters, {made['forward']}"]
    if left_out := made["provenance"].get("left_out"):
        lines.append(f"left out: {', '.join(left_out)}")
    emit(made, lambda: lines, json)
