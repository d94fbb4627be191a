"""A Hugging Face folder: its files are a target and a tokenizer as they are."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from workers.bundle import file_hash, read_json
from workers.weight_files import INDEX, SINGLE, stored_tensors, weight_files

MODEL_FILES = ("config.json", "generation_config.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def folder_facts(source: Path) -> dict[str, Any]:
    """Say where the model comes from. Raises InputError or BundleError for a file that is missing,
    cut off or a Git LFS pointer."""
    config = read_json(source / "config.json")
    stored_tensors(source)
    if not (source / "tokenizer.json").is_file():
        raise InputError(f"SRC: {source} has no tokenizer.json")
    digest = hashlib.sha256()
    for file in sorted((*_model(source), *_tokenizer(source))):
        digest.update(f"{file.name}\0{file_hash(file)}".encode())
    return {
        "name": source.resolve().name,
        "file": source.name,
        "sha256": digest.hexdigest(),
        "quantisation": config.get("dtype") or config.get("torch_dtype") or "float32",
        "licence": None,
    }


def copy_model(source: Path, out: Path, _say: Callable[[str], None]) -> None:
    """Copy the model's files to target/ in `out` and the tokenizer's to tokenizer/."""
    for part, files in (("target", _model(source)), ("tokenizer", _tokenizer(source))):
        (out / part).mkdir()
        for file in files:
            shutil.copyfile(file, out / part / file.name)


def _model(source: Path) -> list[Path]:
    """The weights are those that transformers would read: a folder may hold others too."""
    weights = weight_files(source)
    index = [] if weights[0].name == SINGLE else [source / INDEX]
    named = [source / name for name in MODEL_FILES]
    return sorted(file for file in (*named, *index, *weights) if file.is_file())


def _tokenizer(source: Path) -> list[Path]:
    return sorted(source / name for name in TOKENIZER_FILES if (source / name).is_file())
