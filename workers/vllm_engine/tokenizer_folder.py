"""The bundle's tokenizer in a folder that vLLM can read."""

import hashlib
import os
import tempfile
from pathlib import Path

from workers.bundle import Bundle


def tokenizer_folder(bundle: Bundle) -> Path:
    """Return the bundle's tokenizer folder, or a folder of links with the target's config.json
    if it has none: without one vLLM retries for seconds and logs errors."""
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
    """Create a link atomically, since replicas that start together create the same ones."""
    if not link.exists():
        mine = link.with_name(f"{link.name}.{os.getpid()}")
        mine.symlink_to(file)
        mine.replace(link)
