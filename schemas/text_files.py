"""Read text files strictly, with one error for everything that can be wrong with them."""

import codecs
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE_BYTES = 2**28
"""Longer lines are refused: several copies of a line are held in memory."""
MAX_DEPTH = 100
"""Values that are nested deeper are refused. Our files nest at most ten levels."""
MAX_VALUES = 10_000_000
"""YAML aliases can stand for more values than fit in memory."""


class FileError(ValueError):
    """A file that cannot be used; the message names the file, the line and what is wrong."""


def read_text(file: Path) -> str:
    """Return the whole content of a UTF-8 file. Raises FileError."""
    return "".join(line for _, line in text_lines(file))


def text_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of a UTF-8 file, line feed included, with its number from 1.

    A byte order mark at the beginning is left out. A line ends at a line feed only.
    Raises FileError where the file cannot be read or is not text.
    """
    number = 0
    try:
        with open_file(file) as stream:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield number, _decoded(raw, number, file)
    except OSError as error:
        raise FileError(f"{file}: {error.strerror or error}") from error


def open_file(file: Path) -> BinaryIO:
    """Open a regular file for reading. Raises FileError naming the file for anything else."""
    try:
        kind = file.stat().st_mode
        if stat.S_ISREG(kind):
            return file.open("rb")
    except OSError as error:
        raise FileError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise FileError(f"{file}: not a path: {error}") from error
    if stat.S_ISDIR(kind):
        raise FileError(f"{file}: is a directory; name a file")
    raise FileError(f"{file}: is not a regular file; save its content to one first")


def check_values(value: Any, place: str) -> None:
    """Refuse parsed values that later code cannot handle.

    Raises FileError naming `place` where values are nested too deeply, are too many, or hold half a
    surrogate pair, which is not text: UTF-8 cannot encode it.
    """
    level, seen = [value], 0
    for _ in range(MAX_DEPTH):
        seen += len(level)
        if seen > MAX_VALUES:
            raise FileError(f"{place}: more than {MAX_VALUES:,} values")
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                _check_text(one, place)
            elif isinstance(one, dict):
                below += one.keys()
                below += one.values()
            elif isinstance(one, list):
                below += one
        if not below:
            return
        level = below
    raise FileError(f"{place}: nested more than {MAX_DEPTH} levels deep")


def _check_text(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise FileError(f"{place}: {half} is half a surrogate pair, not a character") from error


def _decoded(raw: bytes, number: int, file: Path) -> str:
    if len(raw) > MAX_LINE_BYTES:
        raise FileError(f"{file}, line {number}: longer than {MAX_LINE_BYTES:,} bytes")
    if number == 1:
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise FileError(f"{file}, line 1: UTF-16; save the file as UTF-8")
        raw = raw.removeprefix(codecs.BOM_UTF8)
    if b"\0" in raw:
        raise FileError(f"{file}, line {number}: holds a NUL byte; this is not a text file")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        wrong = f"byte {raw[error.start]:#04x} at position {error.start + 1}"
        raise FileError(
            f"{file}, line {number}: not UTF-8 ({wrong}); save the file as UTF-8"
        ) from error
