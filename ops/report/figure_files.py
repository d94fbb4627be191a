"""JSON files that benchmarks have written, told apart by what they hold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ops.harness.boundary import InputError
from ops.report.figure_shapes import SHAPES
from schemas.json_files import read_json

KINDS = {
    "bench bounds": "oracle_length",
    "bench router": "embed_ms_p50",
    "bench stages": "stages",
    "bench quality": "quality",
}
"""By command a field that only its figures have."""


def read_figures(files: Sequence[Path]) -> dict[str, Any]:
    """By command its figures. Raises InputError for what is not JSON, is of no command that a
    report has a place for, lacks what the command writes now, or is of one that was named before.
    """
    found: dict[str, Any] = {}
    for file in files:
        figures = read_json(file)
        known = figures if isinstance(figures, dict) else {}
        kind = next((k for k, field in KINDS.items() if field in known), None)
        if kind is None:
            raise InputError(f"--figures: {file}: not of {', '.join(KINDS)}")
        if kind in found:
            raise InputError(f"--figures: {file}: a second file of {kind}; name one")
        _check(file, kind, figures)
        found[kind] = figures
    return found


def _check(file: Path, kind: str, figures: dict[str, Any]) -> None:
    try:
        SHAPES[kind].model_validate(figures)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        wrong = "is missing" if first["type"] == "missing" else f"does not fit: {first['msg']}"
        raise InputError(
            f"--figures: {file}: {field} {wrong}; `specadapt {kind}` of another version wrote it: "
            "run it anew"
        ) from error
