"""JSON Lines files: one JSON value a line."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

Record = TypeVar("Record", bound=BaseModel)


def json_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Each line that is not blank, with its number from 1.

    Blank lines are no error in any of our files: an editor, or files put one after another, leave
    them behind, and they can stand for no value.
    A line ends at a line feed only: a JSON string may hold U+2028, U+0085 and others as they are,
    at which str.splitlines() ends a line as well.
    """
    with file.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def records(file: Path, kind: type[Record], error: type[Exception]) -> Iterator[Record]:
    """Each line of one of a profile's files as a `kind`; raises `error` naming the file, or the
    line and the field."""
    if not file.is_file():
        raise error(f"{file.parent} is not a profile: {file.name} is missing")
    for number, line in json_lines(file):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as invalid:
            detail = invalid.errors()[0]
            where = ".".join(str(part) for part in detail["loc"]) or "line"
            raise error(f"{file}, line {number}: {where}: {detail['msg']}") from invalid
