"""The weight files of a part, the headers of their tensors, and a hash of the target."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from workers.bundle import IMPORTER, Bundle, BundleError, read_json, refuse_pointer

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PACKED = "q4/weights.safetensors"
"""File of a target that was imported from a quantised GGUF file, with its 4-bit matrices as they
are. It may have none."""
_SHARD = re.compile(r".*-\d+-of-\d+\.safetensors")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor's file, shape and dtype, by safetensors' name, such as BF16."""

    file: Path
    shape: tuple[int, ...]
    dtype: str

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


def parameter_count(folder: Path) -> int:
    """Return the numbers in a model's tensors. Raises BundleError as `stored_tensors` does."""
    return sum(math.prod(tensor.shape) for tensor in stored_tensors(folder).values())


def read_header(file: Path) -> dict[str, StoredTensor]:
    """Read the header of one safetensors file; raises BundleError where it is not whole."""
    refuse_pointer(file)
    try:
        with safe_open(file, "numpy") as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
            return {
                name: StoredTensor(file, tuple(one.get_shape()), one.get_dtype())
                for name, one in slices.items()
            }
    except (OSError, ValueError, SafetensorError) as error:
        raise BundleError(
            f"{file} is not a whole safetensors file ({error}): download it again"
        ) from error


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
        read_header(file)
        for piece in _pieces(file):
            digest.update(piece)
    return digest.hexdigest()[:12]


def _pieces(file: Path) -> Iterator[bytes]:
    """Yield each tensor's name, dtype and shape, and PIECE bytes from its middle. The file is
    whole: the length of its JSON header, the header, then the tensors."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header: dict[str, Any] = json.loads(opened.read(length))
        header.pop("__metadata__", None)
        for name, entry in sorted(header.items()):
            begin, end = entry["data_offsets"]
            yield f"{name} {entry['dtype']} {tuple(entry['shape'])}\0".encode()
            opened.seek(8 + length + begin + max(0, end - begin - PIECE) // 2)
            yield opened.read(min(PIECE, end - begin))
