"""What tells a bundle's target from another one that its name stood for before."""

import hashlib

from workers.bundle import IMPORTER, Bundle
from workers.weight_files import read_header, weight_files

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
