"""How many parameters a method's models have."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ops.cli.boundary import InputError
from workers.bundle import Bundle
from workers.portfolio import method_of, parts_of

FLOATS = ("F", "BF")
LENGTH_BYTES = 8
"""At the start of a safetensors file: the length of the JSON header that follows."""


def parameters_by_method(bundle: Bundle, methods: Iterable[str]) -> dict[str, int]:
    """Of the target and the parts that the method drafts with."""
    return {
        name: sum(parameters(folder) for folder in folders_of(name, bundle)) for name in methods
    }


def folders_of(method: str, bundle: Bundle) -> list[Path]:
    """The target's, and those of all parts that the method drafts with."""
    parts = parts_of(method_of(method, bundle), bundle)
    return [bundle.part(part) for part in ("target", *parts)]


def parameters(folder: Path) -> int:
    """Numbers in the floating-point tensors of a model's safetensors files, shared ones once.

    Raises InputError where there are none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"{folder}: no safetensors files to count parameters in")
    return sum(math.prod(tensor["shape"]) for file in files for tensor in _floats(file))


def stored_bytes(folder: Path) -> int:
    """That these tensors take in the model's files."""
    return sum(
        tensor["data_offsets"][1] - tensor["data_offsets"][0]
        for file in folder.glob("*.safetensors")
        for tensor in _floats(file)
    )


def _floats(file: Path) -> list[dict[str, Any]]:
    return [
        tensor
        for name, tensor in _header(file).items()
        if name != "__metadata__" and tensor["dtype"].startswith(FLOATS)
    ]


def _header(file: Path) -> dict[str, dict[str, Any]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(LENGTH_BYTES), "little")
        header: dict[str, dict[str, Any]] = json.loads(opened.read(length))
    return header
