"""The weight files of a part, the headers of their tensors, and a hash of the target."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.bundle import IMPORTER, Bundle, BundleError, read_json, refuse_pointer

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r".*-\d+-of-\d+\.safetensors")
_BITS = re.compile(r"(?<=[A-Z])(8|16|32|64)(?!\d)")
"""In a dtype's name: how many bits a number has. Others are not checked."""
_LENGTH_BYTES = 8
"""A safetensors file begins with the length of its JSON header."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's file, shape and dtype. dtype: safetensors' name, such as BF16. begin: place of its
    first byte in the file."""

    file: Path
    shape: tuple[int, ...]
    dtype: str
    begin: int
    bytes: int

    @property
    def is_plain(self) -> bool:
        """Whether the numbers stand for themselves; those of narrower types need a scale."""
        return self.dtype in ("F64", "F32", "F16", "BF16")

    @property
    def is_float(self) -> bool:
        """Return whether the tensor holds floating-point numbers."""
        return self.dtype.startswith(("F", "BF"))


def weight_files(folder: Path) -> list[Path]:
    """List the safetensors files of a model as transformers picks them: model.safetensors, else
    those that the index names, else the only one there is. Other files do not count.

    Raises BundleError where there is none, one is missing, or several have no index.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return sorted({folder / name for name in _weight_map(folder).values()})
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise BundleError(f"no *.safetensors in {folder}")
    if len(found) > 1 or _SHARD.fullmatch(found[0].name):
        raise BundleError(
            f"{folder}: {found[0].name} is one of several files and {INDEX} is missing: "
            "download the index too"
        )
    return found


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Read the headers of a model's safetensors files.

    Raises BundleError as `weight_files` does, and for a file that is damaged, cut off or a Git LFS
    pointer, or that lacks a tensor that the index promises.
    """
    tensors = {
        name: tensor for file in weight_files(folder) for name, tensor in read_header(file).items()
    }
    if not (folder / SINGLE).is_file() and (folder / INDEX).is_file():
        for name, file in _weight_map(folder).items():
            if name not in tensors or tensors[name].file.name != file:
                raise BundleError(f"{folder}/{INDEX}: tensor {name!r} is not in {file}")
    return tensors


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Read the header of one safetensors file; raises BundleError where it is not whole."""
    refuse_pointer(file)
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        start = _LENGTH_BYTES + length
        try:
            header: Any = json.loads(opened.read(length) if _LENGTH_BYTES < start <= size else b"")
            tensors = {
                name: _stored(file, entry, start)
                for name, entry in header.items()
                if name != "__metadata__"
            }
            end = _end([header[name]["data_offsets"] for name in tensors])
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise BundleError(
                f"{file} is not a whole safetensors file: download it again"
            ) from error
    if start + end != size:
        raise BundleError(
            f"{file} is cut off or damaged: it has {size} bytes and its header describes "
            f"{start + end}: download it again"
        )
    return tensors


def _stored(file: Path, entry: Mapping[str, Any], start: int) -> StoredTensor:
    begin, end = entry["data_offsets"]
    stored = StoredTensor(file, tuple(entry["shape"]), entry["dtype"], start + begin, end - begin)
    bits = _BITS.search(stored.dtype)
    if bits and math.prod(stored.shape) * int(bits[0]) != 8 * stored.bytes:
        raise ValueError(f"{stored.shape} of {stored.dtype} in {stored.bytes} bytes")
    return stored


def _end(offsets: list[tuple[int, int]]) -> int:
    """Where the last tensor ends; raises ValueError where they do not follow one another."""
    at = 0
    for begin, end in sorted(offsets):
        if begin != at:
            raise ValueError(f"a tensor begins at {begin}, the one before ends at {at}")
        at = end
    return at


def _weight_map(folder: Path) -> dict[str, str]:
    index = folder / INDEX
    named: Any = read_json(index).get("weight_map")
    try:
        whole = bool(named) and all(Path(name).name == name for name in named.values())
    except (AttributeError, TypeError):
        whole = False
    if not whole:
        raise BundleError(f"{index}: 'weight_map' must map tensors to files in this folder")
    missing = sorted({name for name in named.values() if not (folder / name).is_file()})
    if missing:
        raise BundleError(f"{index}: {', '.join(missing)} is missing: download it too")
    return dict(named)


PIECE = 4096
"""Bytes of each tensor, from its middle: training changes all of a tensor."""


def target_hash(bundle: Bundle) -> str:
    """Return twelve hex digits over the target's config and pieces of its weights, or over the
    packaged file's hash.

    It reads about a megabyte of a target of 300 tensors, so that every process of a service can
    afford it, and is the same on every node. Raises BundleError for a missing target and for
    weights that are not whole.
    """
    digest = hashlib.sha256()
    if bundle.packaged is not None:
        digest.update(f"{IMPORTER} {bundle.packaged.sha256}".encode())
        return digest.hexdigest()[:12]
    folder = bundle.part("target")
    config = folder / "config.json"
    digest.update(config.read_bytes() if config.is_file() else b"")
    for file in weight_files(folder) if any(folder.glob("*.safetensors")) else ():
        with file.open("rb") as opened:
            for name, tensor in sorted(read_header(file).items()):
                digest.update(f"{name} {tensor.dtype} {tensor.shape}\0".encode())
                opened.seek(tensor.begin + max(0, tensor.bytes - PIECE) // 2)
                digest.update(opened.read(min(PIECE, tensor.bytes)))
    return digest.hexdigest()[:12]
