"""Prompt files: JSON Lines with one prompt, conversation or question a line."""

import hashlib
import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.common.boundary import InputError
from schemas.json_files import json_lines
from schemas.text_files import FileError, check_values, text_lines

SHIPPED = Path(__file__).parents[1] / "data" / "prompts.jsonl"
STANDARD_INPUT = Path("-")
MOST_PIPED = 2**28
UNLABELLED = "other"
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Prompt:
    """A request to a model: its messages, and the text that is embedded for routing.

    later: the user's further turns, for benchmarks of conversations.
    """

    id: str
    domain: str
    messages: tuple[dict[str, str], ...]
    response: str | None = None
    later: tuple[dict[str, str], ...] = ()

    @property
    def text(self) -> str:
        """The last user message."""
        return next(m["content"] for m in reversed(self.messages) if m["role"] == "user")


def select(
    files: Sequence[Path] | None, ids: Path | None = None, limit: int | None = None, seed: int = 0
) -> list[Prompt]:
    """Return the prompts that the flags `--prompts`, `--ids` and `--limit` select.

    Raises InputError if a file is malformed, an id is missing from it, or no prompt is left.
    """
    prompts = read(*(files or [SHIPPED]))
    if ids is not None:
        prompts = _with_ids(prompts, ids)
    if limit is not None:
        prompts = take(prompts, limit, seed)
    return prompts


def read(*files: Path) -> list[Prompt]:
    """Read all prompts of some files.

    Each line is `{"prompt": str}`, `{"turns": [...]}` (strings or {role, content}; the first user
    turn is the prompt, the others are `later`) or `{"messages": [...]}` (a conversation that ends
    with the user), with an optional `id`, `domain` and `response`. Raises ValueError naming the
    file and the line, and both lines if an id is given twice. Lines without an id may repeat a
    prompt.
    """
    prompts: list[Prompt] = []
    places: dict[str, str] = {}
    for file, row_lines in ((file, _lines(file)) for file in files):
        before = len(prompts)
        for number, row in row_lines:
            place = f"{file}, line {number}"
            try:
                prompts.append(parse(row))
            except InputError as error:
                raise InputError(f"{place}: {error}") from error
            if row.get("id") is not None:
                _once(prompts[-1].id, place, places)
        if len(prompts) == before:
            raise InputError(f"{file}: no prompts in it")
    return prompts


def _lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield a prompt file's JSON values with their line numbers.

    Standard input (`-`) and pipes are copied to a temporary file first, up to MOST_PIPED bytes.
    """
    if file != STANDARD_INPUT and not file.is_fifo():
        yield from json_lines(file)
        return
    with (
        nullcontext(sys.stdin.buffer) if file == STANDARD_INPUT else file.open("rb") as stream,
        tempfile.TemporaryDirectory() as folder,
    ):
        copy = Path(folder) / "prompts.jsonl"
        content = stream.read(MOST_PIPED + 1)
        if len(content) > MOST_PIPED:
            raise InputError(f"{file}: more than {MOST_PIPED:,} bytes; save them to a file first")
        copy.write_bytes(content)
        try:
            yield from json_lines(copy)
        except FileError as error:
            raise FileError(str(error).replace(str(copy), str(file))) from error


def read_ids(file: Path) -> list[str]:
    """Read prompt ids that are separated by white space.

    Raises ValueError naming the file, and both lines if an id is given twice.
    """
    places: dict[str, str] = {}
    for number, line in text_lines(file):
        for name in line.split():
            _once(name, f"{file}, line {number}", places)
    if not places:
        raise InputError(f"{file}: no ids in it")
    return list(places)


def parse(row: Any) -> Prompt:
    """One line's JSON as a Prompt; raises InputError saying which field is missing or wrong."""
    if not isinstance(row, dict):
        raise InputError("expected a JSON object with prompt, turns or messages")
    messages, later = _messages(row)
    fallback = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:12]
    return Prompt(
        id=_id(row["id"]) if row.get("id") is not None else fallback,
        domain=_text(row, "domain") if row.get("domain") is not None else UNLABELLED,
        messages=messages,
        response=_text(row, "response") if row.get("response") is not None else None,
        later=later,
    )


def take(prompts: Sequence[Prompt], limit: int, seed: int) -> list[Prompt]:
    """`limit` prompts, one domain after the other in turn, each domain in an order the seed fixes.

    A smaller limit under the same seed is a prefix of a larger one.
    """
    by_domain: dict[str, list[Prompt]] = {}
    for prompt in sorted(prompts, key=lambda p: p.id):
        by_domain.setdefault(prompt.domain, []).append(prompt)
    for domain, members in by_domain.items():
        random.Random(f"{seed} {domain}").shuffle(members)
    taken: list[Prompt] = []
    for rank in range(max(map(len, by_domain.values()), default=0)):
        taken += [by_domain[d][rank] for d in sorted(by_domain) if rank < len(by_domain[d])]
    return taken[:limit]


def fingerprint(prompts: Iterable[Prompt]) -> str:
    """Twelve hex digits over the ids and messages, in order: which prompts a figure is about."""
    body = json.dumps(
        [[one.id, one.messages, *([one.later] if one.later else [])] for one in prompts]
    )
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def _with_ids(prompts: Sequence[Prompt], ids: Path) -> list[Prompt]:
    by_id = {prompt.id: prompt for prompt in prompts}
    wanted = read_ids(ids)
    missing = [name for name in wanted if name not in by_id]
    if missing:
        raise InputError(f"{ids}: {len(missing)} ids are in no prompts file, first {missing[0]}")
    return [by_id[name] for name in wanted]


def _once(name: str, place: str, places: dict[str, str]) -> None:
    """Record the place of an id. Raises InputError naming both places if it was there before."""
    if name in places:
        raise InputError(f"{place}: id {name!r} is given twice, first in {places[name]}")
    places[name] = place


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(f"id: expected text or a whole number, got {json.dumps(value)[:40]}")
    return str(value)


def _messages(row: dict[str, Any]) -> tuple[tuple[dict[str, str], ...], tuple[dict[str, str], ...]]:
    """Return the prompt's messages and the user's later turns."""
    if "prompt" in row:
        return ({"role": "user", "content": _text(row, "prompt")},), ()
    if "messages" in row:
        messages = tuple(_message(m, index) for index, m in enumerate(_list(row, "messages")))
        if messages[-1]["role"] != "user":
            raise InputError("messages: the last one must be the user's")
        return messages, ()
    if "turns" in row:
        first, *later = _user_turns(_list(row, "turns"))
        return (first,), tuple(later)
    raise InputError("needs one of the fields prompt, turns, messages")


def _user_turns(turns: list[Any]) -> list[dict[str, str]]:
    said = [{"role": "user", "content": turn} if isinstance(turn, str) else turn for turn in turns]
    messages = [_message(turn, index) for index, turn in enumerate(said)]
    found = [message for message in messages if message["role"] == "user"]
    if not found:
        raise InputError("turns: none is the user's")
    return found


def _message(value: Any, index: int) -> dict[str, str]:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        raise InputError(f"message {index}: needs role (one of {', '.join(ROLES)}) and content")
    return {"role": value["role"], "content": _text(value, "content")}


def _list(row: dict[str, Any], field: str) -> list[Any]:
    value = row[field]
    if not isinstance(value, list) or not value:
        raise InputError(f"{field}: expected a list with at least one entry")
    return value


def _text(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{field}: expected text, got {json.dumps(value)[:40]}")
    # Of a command line that is not UTF-8; what is read from a file is checked there.
    check_values(value, field)
    return value
