"""`specadapt export-encoder`: all-MiniLM-L6-v2 as an ONNX graph."""

import logging
from pathlib import Path
from typing import Annotated

from ops.common import flags
from ops.common.flags import Json
from ops.common.output import emit, quiet_transformers


def export_encoder(
    out: Annotated[Path, flags.option("--out", "folder of the exported encoder", "DIR")],
    json: Json = None,
) -> None:
    """Export all-MiniLM-L6-v2 to quantised ONNX.

    Serve with it by `router.encoder: DIR` or SPECADAPT_ENCODER, and fit the routing table with it.

    Example: `specadapt export-encoder --out runs/minilm`
    """
    from router.fit.encoder_export import export_encoder as export

    quiet_transformers()
    logging.disable(logging.WARNING)  # the quantiser's advice about models larger than this one
    try:
        info = export(out)
    finally:
        logging.disable(logging.NOTSET)
    figures = {"path": str(out), **info.model_dump(mode="json")}
    emit(figures, lambda: [f"{info.name} ({info.dimension} dimensions) is at {out}"], json)
