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
    """Read JSON files of benchmarks and return them by command.

    Raises InputError for files that are not JSON, come from another command or version, or repeat a
    command.
    """
    found: dict[str, Any] = {}
    for file in files:
        figures = read_json(file)
        known = figures if isinstance(figures, dict) else {}
        kind = next((k for k, field in KINDS.items() if field in known), None)
        if kind is None:
            raise InputError(f"--figures: {file}: not written by one of {', '.join(KINDS)}")
        if kind in found:
            raise InputError(f"--figures: {file}: a second file of {kind}; name only one")
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
            "run it again"
        ) from error
