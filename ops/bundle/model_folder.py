"""A Hugging Face folder: its files are a target and a tokenizer as they are."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ops.cli.boundary import InputError
from workers.bundle import file_hash

MODEL_FILES = ("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def folder_facts(source: Path) -> dict[str, Any]:
    """Where the model comes from. Raises InputError for a file that is missing."""
    for needed in ("*.safetensors", "tokenizer.json"):
        if not any(source.glob(needed)):
            raise InputError(f"SRC: {source} has no {needed}")
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256()
    for file in _files(source):
        digest.update(f"{file.name}\0{file_hash(file)}".encode())
    return {
        "name": source.resolve().name,
        "file": source.name,
        "sha256": digest.hexdigest(),
        "quantisation": config.get("dtype") or config.get("torch_dtype") or "float32",
        "licence": None,
    }


def copy_model(source: Path, out: Path, _say: Callable[[str], None]) -> None:
    """target/ and tokenizer/ in `out`."""
    for part, patterns in (("target", MODEL_FILES), ("tokenizer", TOKENIZER_FILES)):
        (out / part).mkdir()
        for pattern in patterns:
            for file in source.glob(pattern):
                shutil.copyfile(file, out / part / file.name)


def _files(source: Path) -> list[Path]:
    patterns = (*MODEL_FILES, *TOKENIZER_FILES)
    return sorted(file for pattern in patterns for file in source.glob(pattern))
