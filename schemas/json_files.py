"""Read JSON and JSON Lines files strictly: content that a lenient parser drops is refused."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.base import problems
from schemas.text_files import FileError, check_values, read_text, text_lines

Record = TypeVar("Record", bound=BaseModel)

BYTE_ORDER_MARK = "\ufeff"


def read_json(file: Path) -> Any:
    """Return the value of a JSON file. Raises FileError naming the file and the line."""
    return parse_json(read_text(file), str(file), whole_file=True)


def json_lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line that is not blank, with the line's number from 1.

    Blank lines and byte order marks are skipped: editors and concatenation leave them behind.
    Raises FileError naming the file and the line.
    """
    for number, line in text_lines(file):
        if text := line.removeprefix(BYTE_ORDER_MARK).strip():
            yield number, parse_json(text, f"{file}, line {number}")


def records(
    file: Path, kind: type[Record], error: type[Exception], key: str | None = None
) -> Iterator[Record]:
    """Yield each line of one of a profile's files as a `kind`. No two have the same `key`.

    Raises `error` naming the file, or the line and the field.
    """
    if not file.is_file():
        raise error(f"{file.parent} is not a profile: {file.name} is missing")
    first: dict[Any, int] = {}
    try:
        for number, value in json_lines(file):
            place = f"{file}, line {number}"
            record = validated(kind, value, place)
            if key is not None and first.setdefault(getattr(record, key), number) != number:
                before = first[getattr(record, key)]
                raise FileError(f"{place}: {key} is given twice, first in line {before}")
            yield record
    except FileError as wrong:
        raise error(str(wrong)) from wrong


def read_record(file: Path, kind: type[Record]) -> Record:
    """Return a JSON file's value as a `kind`. Raises FileError naming the file and the field."""
    return validated(kind, read_json(file), str(file))


def validated(kind: type[Record], value: Any, place: str) -> Record:
    """Return a parsed value as a `kind`. Raises FileError naming the place and the field."""
    try:
        return kind.model_validate(value)
    except ValidationError as invalid:
        raise FileError(f"{place}: {problems(invalid)[0]}") from invalid


def parse_json(text: str, place: str, whole_file: bool = False) -> Any:
    """Return a JSON text's value. Raises FileError naming `place`, and the line of a whole file."""
    try:
        value = json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
            parse_float=_finite,
        )
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if whole_file else ""
        raise FileError(f"{place}{line}: not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise FileError(f"{place}: nested too deeply") from error
    except ValueError as error:
        raise FileError(f"{place}: {error}") from error
    check_values(value, place)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key {name!r} is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large a number")
    return value
