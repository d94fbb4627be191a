"""JSON Lines files: one JSON value a line."""

from collections.abc import Iterator
from pathlib import Path


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
