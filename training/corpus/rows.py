"""The rows of a training corpus and how they are read and written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from schemas.json_files import json_lines

ROLES = ("system", "user", "assistant")


class CorpusError(ValueError):
    """The input cannot be used; the message names the file, the line, the field and the fix."""


class Message(TypedDict):
    """One message of a conversation."""

    role: str
    content: str


class Row(TypedDict):
    """A conversation that ends with an answer."""

    id: str
    domain: str
    source: str
    messages: list[Message]


def row_text(row: Row) -> str:
    """Return the contents of all messages of a row."""
    return "\n".join(message["content"] for message in row["messages"])


def stable_fraction(seed: int, key: str) -> float:
    """Return a number in [0, 1) that depends only on `seed` and `key`, on every machine."""
    digest = hashlib.blake2b(f"{seed}\x00{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def conversations(file: Path) -> Iterator[Row]:
    """Yield the conversations of a JSON Lines file.

    A line holds `prompt` and `response`, `messages`, or `turns` (`{role, content}` each), and
    optionally `id`, `domain` and `source`. Messages after the last answer are cut. Lines without
    an answer are skipped. Raises ValueError naming the file and the line for what cannot be used.
    """
    for where, value in _objects(file):
        messages = _messages(value, where)
        while messages and messages[-1]["role"] != "assistant":
            messages.pop()
        if len(messages) > 1:
            number = where.rpartition(" ")[2]
            yield {
                "id": str(value.get("id", f"{file.stem}-{number}")),
                "domain": str(value.get("domain", "general")),
                "source": str(value.get("source", file.stem)),
                "messages": messages,
            }


def read_rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file that `write_rows` wrote. Raises ValueError like `conversations`."""
    for _, value in _objects(file):
        yield value  # type: ignore[misc]


def write_rows(file: Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON Lines."""
    with file.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _objects(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not file.is_file():
        raise CorpusError(f"{file} is not a file; name JSON Lines files with --data")
    for number, value in json_lines(file):
        where = f"{file}, line {number}"
        if not isinstance(value, dict):
            raise CorpusError(f"{where}: must be a JSON object")
        yield where, value


def _messages(value: dict[str, Any], where: str) -> list[Message]:
    if "prompt" in value:
        pair = (("user", value["prompt"]), ("assistant", value.get("response") or ""))
        return [_message(role, text, where) for role, text in pair if text]
    turns = value.get("messages", value.get("turns"))
    if not isinstance(turns, list):
        raise CorpusError(f"{where}: needs `prompt` and `response`, `messages`, or `turns`")
    found = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise CorpusError(f"{where}: a message must be an object with `role` and `content`")
        found.append(_message(turn.get("role"), turn.get("content"), where))
    return found


def _message(role: object, content: object, where: str) -> Message:
    if role not in ROLES:
        raise CorpusError(f"{where}: role is {role!r}; it must be one of {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise CorpusError(f"{where}: the text of a message must be a string, got {content!r}")
    return {"role": str(role), "content": content.strip()}
