"""A model family on disk: tokenizer, target, draft and heads, each in Hugging Face layout."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

MANIFEST = "bundle.json"


class BundleError(ValueError):
    """The folder is not a usable bundle; the message names the file or part and the fix."""


@dataclass(frozen=True)
class Bundle:
    """A folder with bundle.json `{"name": ..., "parts": {"target": "target", ...}}`.

    Every part is a sub-folder that Hugging Face and vLLM load as it is.
    """

    name: str
    path: Path
    parts: dict[str, str]

    def part(self, name: str) -> Path:
        """The folder of one part; raises BundleError where the bundle has none."""
        if name not in self.parts:
            known = ", ".join(sorted(self.parts))
            raise BundleError(f"bundle {self.name} has no part {name!r}: it has {known}")
        folder = self.path / self.parts[name]
        if not folder.is_dir():
            raise BundleError(f"bundle {self.name}: part {name!r} is missing at {folder}")
        return folder

    def has(self, name: str) -> bool:
        """Whether the part is named in bundle.json and present on disk."""
        return name in self.parts and (self.path / self.parts[name]).is_dir()

    def tokenizer(self) -> Any:
        """The family's tokenizer (a transformers fast tokenizer), read from disk only."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.part("tokenizer"), local_files_only=True)

    def backend_tokenizer(self) -> Tokenizer:
        """The same without transformers, whose import brings torch along: to decode with."""
        return Tokenizer.from_file(str(self.part("tokenizer") / "tokenizer.json"))

    @cached_property
    def content_hash(self) -> str:
        """Twelve hex digits over the names and bytes of every part's files."""
        digest = hashlib.sha256()
        for part in sorted(self.parts):
            folder = self.part(part)
            for file in sorted(f for f in folder.rglob("*") if f.is_file()):
                digest.update(f"{part}/{file.relative_to(folder).as_posix()}\0".encode())
                with file.open("rb") as stream:
                    digest.update(hashlib.file_digest(stream, "sha256").digest())
        return digest.hexdigest()[:12]


def name_part(path: Path | str, part: str) -> None:
    """Name a part in a bundle's manifest, in the folder of its own name; one that is named already
    stays as it is. Raises BundleError as `load_bundle` does."""
    bundle = load_bundle(path)
    if part not in bundle.parts:
        body = {"name": bundle.name, "parts": bundle.parts | {part: part}}
        (bundle.path / MANIFEST).write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def load_bundle(path: Path | str) -> Bundle:
    """Read bundle.json of a folder; raises BundleError where it is absent or malformed."""
    folder = Path(path)
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise BundleError(f"no {MANIFEST} in {folder}: name a bundle's folder (--bundle DIR)")
    try:
        body = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BundleError(f"{manifest} is not JSON: {error}") from error
    name = body.get("name") if isinstance(body, dict) else None
    parts = body.get("parts") if isinstance(body, dict) else None
    if not isinstance(name, str) or not name:
        raise BundleError(f"{manifest}: 'name' must be a string")
    if not isinstance(parts, dict) or not all(isinstance(p, str) for p in parts.values()):
        raise BundleError(f"{manifest}: 'parts' must map part names to folders")
    for part, folder_name in parts.items():
        if not (folder / folder_name).resolve().is_relative_to(folder.resolve()):
            raise BundleError(f"{manifest}: part {part!r} must be a folder inside the bundle")
    return Bundle(name=name, path=folder, parts=dict(parts))
