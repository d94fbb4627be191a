"""The rows of the training corpus and how they are read and written."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from schemas.json_files import json_lines

DOMAINS = (
    "code",
    "creative",
    "dialogue",
    "edit",
    "general",
    "logic",
    "math",
    "qa",
    "tool_use",
    "translation",
)


class CorpusError(ValueError):
    """Input of the corpus that cannot be used; the message names the field and the fix."""


class Message(TypedDict):
    role: str
    content: str


class Row(TypedDict):
    id: str
    domain: str
    source: str
    messages: list[Message]


@dataclass(frozen=True)
class Sample:
    """One generated task. Samples of the same `group` share their text or their slots, so they
    go to the same side of the split."""

    domain: str
    task: str
    group: str
    prompt: str
    response: str


Generator = Callable[[random.Random], Sample]


def single_turn(
    row_id: str, domain: str, source: str, prompt: str, response: str, system: str = ""
) -> Row:
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    messages.append({"role": "assistant", "content": response})
    return {"id": row_id, "domain": domain, "source": source, "messages": messages}


def row_text(row: Row) -> str:
    return "\n".join(message["content"] for message in row["messages"])


def stable_fraction(seed: int, key: str) -> float:
    """A number in [0, 1) that depends on `seed` and `key` alone, on every machine."""
    digest = hashlib.blake2b(f"{seed}\x00{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def read_jsonl(path: Path) -> Iterator[dict[str, object]]:
    """Raises ValueError when the file is missing or a line is not a JSON object."""
    if not path.is_file():
        raise CorpusError(f"no file {path}: point `shared` at the folder with the data files")
    for number, value in json_lines(path):
        if not isinstance(value, dict):
            raise CorpusError(f"{path}:{number} must be a JSON object")
        yield value


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file that `write_rows` wrote."""
    yield from read_jsonl(path)  # type: ignore[misc]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
