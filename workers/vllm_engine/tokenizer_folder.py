"""The bundle's tokenizer as vLLM reads it: beside the model's config.json."""

import hashlib
import os
import tempfile
from pathlib import Path

from workers.bundle import Bundle


def tokenizer_folder(bundle: Bundle) -> Path:
    """The part `tokenizer`; where it has no config.json, a folder of links to it and to the
    target's. vLLM retries for seconds and logs errors where there is none."""
    tokenizer, config = bundle.part("tokenizer"), bundle.part("target") / "config.json"
    if (tokenizer / "config.json").is_file():
        return tokenizer
    key = hashlib.sha256(f"{tokenizer.resolve()}\0{config.resolve()}".encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"specadapt-tokenizers-{os.getuid()}" / key
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*tokenizer.iterdir(), config):
        _link(folder / file.name, file.resolve())
    return folder


def _link(link: Path, file: Path) -> None:
    """Replicas that start together make the same links: each puts a whole one in its place."""
    if not link.exists():
        mine = link.with_name(f"{link.name}.{os.getpid()}")
        mine.symlink_to(file)
        mine.replace(link)
