"""What a bundle is made of: a GGUF file, a Hugging Face folder, or a package's file."""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from ops.models.bundle.gguf_file import GgufFile
from ops.models.bundle.gguf_model import convert_gguf
from ops.models.bundle.model_folder import copy_model, folder_facts
from ops.models.bundle.trial import try_out
from workers.bundle import (
    MANIFEST,
    PACKAGED_PARTS,
    Packaged,
    file_hash,
    load_bundle,
    read_json,
)
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.weight_files import stored_tensors

PROVENANCE = "provenance.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    folder: of the bundle, or in the cache for a packaged model. fresh: whether it was created now.
    forward: the implementation that computes its forward pass.
    """

    folder: Path
    fresh: bool
    parameters: int
    forward: str
    provenance: dict[str, Any]

    def figures(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"folder": str(self.folder)}


def imported(source: Path, out: Path | None, say: Say) -> Imported:
    """Make a bundle of a source in `out`, or fetch the packaged model that a bundle names.

    `out` defaults to bundles/NAME; a packaged model goes to the user's cache. What exists stays.
    Raises InputError for another kind of source, one with another hash, or an `out` that holds
    another model.
    """
    if (source / MANIFEST).is_file():
        bundle = load_bundle(source)
        if bundle.packaged is None:
            raise InputError(f"SRC: {source} already has its target; there is nothing to import")
        if out is not None:
            raise InputError(f"--out: {source} takes a package's model, which the cache keeps")
        return _packaged(bundle.packaged, say)
    convert: Callable[[Path, Path, Callable[[str], None]], None]
    if source.is_file():
        convert, facts = convert_gguf, GgufFile(source).facts()
    elif (source / "config.json").is_file():
        convert, facts = copy_model, folder_facts(source)
    else:
        raise InputError(
            f"SRC: {source} is neither a GGUF file nor a folder with config.json or {MANIFEST}"
        )
    name = _slug(facts["name"])
    folder = out or Path("bundles") / name
    parts = {part: part for part in PACKAGED_PARTS}
    with _made(folder, facts, say) as scratch:
        if scratch is not None:
            convert(source, scratch, say)
            _tried(scratch, say)
            body = {"name": name, "parts": parts}
            (scratch / MANIFEST).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    return _described(folder, fresh=scratch is not None)


def _packaged(packaged: Packaged, say: Say) -> Imported:
    if (packaged.folder / PROVENANCE).is_file():
        return _described(packaged.folder, fresh=False)
    file = packaged.installed()
    if file_hash(file) != packaged.sha256:
        raise InputError(f"{file} is not the file that the bundle names: its SHA-256 differs")
    facts = GgufFile(file).facts() | {"package": packaged.package}
    with _made(packaged.folder, facts, say) as scratch:
        if scratch is not None:
            convert_gguf(file, scratch, say)
            _tried(scratch, say)
    return _described(packaged.folder, fresh=scratch is not None)


def _tried(scratch: Path, say: Say) -> None:
    """Decode a token; raises InputError naming no path of the scratch folder, which goes away."""
    say("decoding one token")
    try:
        try_out(scratch)
    except Exception as error:  # whatever the libraries that load a model raise for odd files
        known = isinstance(error, ValueError)
        said = str(error) if known else f"SRC: the model cannot be loaded: {error!r}"
        where = said.replace(f"{scratch}/target", "SRC").replace(f"{scratch}/", "SRC/")
        raise InputError(where.replace(str(scratch), "SRC")) from error


@contextmanager
def _made(folder: Path, facts: dict[str, Any], say: Say) -> Iterator[Path | None]:
    """Yield a scratch folder that becomes `folder` when it is complete, or None if that exists."""
    if folder.exists():
        if _provenance(folder).get("sha256") != facts["sha256"]:
            raise InputError(f"{folder} is there with something else in it: name another --out")
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".import-", dir=folder.parent) as name:
        scratch = Path(name) / folder.name
        scratch.mkdir()
        say(f"importing {facts['name']} ({facts['quantisation']}) into {folder}")
        yield scratch
        text = json.dumps(facts, indent=2) + "\n"
        (scratch / PROVENANCE).write_text(text, encoding="utf-8")
        if not folder.exists():  # another process was as quick
            shutil.move(scratch, folder)


def _described(folder: Path, fresh: bool) -> Imported:
    target = folder / "target"
    parameters = sum(math.prod(tensor.shape) for tensor in stored_tensors(target).values())
    try:
        read_shape(target)
        forward = "our own forward"
    except NotCoveredError as reason:
        forward = f"transformers' forward ({reason})"
    return Imported(folder, fresh, parameters, forward, _provenance(folder))


def _provenance(folder: Path) -> dict[str, Any]:
    file = folder / PROVENANCE
    return read_json(file) if file.is_file() else {}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "model"
