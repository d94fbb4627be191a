"""`specadapt export-encoder`: the sentence encoder as an ONNX graph; part of installing."""

import logging
from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.flags import Json
from ops.common.output import emit, quiet_transformers


def export_encoder(
    out: Annotated[
        Path | None,
        flags.option(
            "--out",
            "folder of the exported encoder  [default: $SPECADAPT_ENCODER, else the user's cache]",
            "DIR",
        ),
    ] = None,
    source: Annotated[
        str | None,
        flags.option("--source", "folder or hub name of the weights  [default: the packaged ones]"),
    ] = None,
    json: Json = None,
) -> None:
    """Export all-MiniLM-L6-v2 to quantised ONNX; do nothing if it is there already.

    Example: `specadapt export-encoder`
    """
    from router.embed import encoder_dir
    from router.fit.encoder_export import export_encoder as export

    quiet_transformers()
    folder = out or encoder_dir()
    logging.disable(logging.WARNING)  # the quantiser's advice about models larger than this one
    try:
        info = export(folder, source)
    finally:
        logging.disable(logging.NOTSET)
    figures = {"path": str(folder), **info.model_dump(mode="json")}
    emit(figures, lambda: [f"{info.name} ({info.dimension} dimensions) is at {folder}"], json)
