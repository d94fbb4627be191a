"""Checks of every command's parameters before the command runs."""

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typer.core import TyperGroup

LARGEST = 2**53
"""Integers up to here are exact as floats, and fit what they are handed to."""
ADDRESSES = ("url",)
OUTPUTS = ("json", "out", "work", "readme")
STANDARD_OUTPUT = Path("-")


def check_all(group: TyperGroup, refuse: Callable[[str], Exception]) -> None:
    """Make every command of a group check its parameters first; `refuse` makes the exception."""
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            check_all(command, refuse)
        elif command.callback is not None:
            command.callback = _checking(command.params, command.callback, refuse)


def _checking(
    params: Sequence[Any], run: Callable[..., Any], refuse: Callable[[str], Exception]
) -> Callable[..., Any]:
    folders = {str(p.name) for p in params if p.name in OUTPUTS and p.metavar == "DIR"}

    @wraps(run)
    def checked(**values: Any) -> Any:
        for problem in (
            _number_problem(values),
            _address_problem(values),
            _output_problem(values, folders),
        ):
            if problem is not None:
                raise refuse(problem)
        return run(**values)

    return checked


def _number_problem(values: Mapping[str, Any]) -> str | None:
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{_flag(name)}: expected a finite number, not {value}"
        if isinstance(value, int) and abs(value) > LARGEST:
            return f"{_flag(name)}: expected a number of at most {LARGEST}, not {value}"
    return None


def _address_problem(values: Mapping[str, Any]) -> str | None:
    for name in ADDRESSES:
        address = values.get(name)
        if address is not None and not _is_address(address):
            return f"{_flag(name)}: give an address such as http://127.0.0.1:8000, not {address!r}"
    return None


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        there = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of a port that is none, and of half an IPv6 address
        return False
    return bool(there) and text.isprintable() and " " not in text


def _output_problem(values: Mapping[str, Any], folders: set[str]) -> str | None:
    """Return what would keep a command from writing its results."""
    for name in OUTPUTS:
        path = values.get(name)
        if isinstance(path, Path) and path != STANDARD_OUTPUT:
            try:
                _check_folder(path) if name in folders else _check_file(path)
            except OSError as error:
                return f"{_flag(name)}: {error.filename or path}: {error.strerror}"
    return None


def _check_file(file: Path) -> None:
    if file.is_dir():
        raise IsADirectoryError(21, "is a directory; name a file", str(file))
    if not file.exists():
        _check_folder(file.parent)
    elif not os.access(file, os.W_OK):
        raise PermissionError(13, "cannot be written", str(file))


def _check_folder(folder: Path) -> None:
    """Raise OSError if a folder cannot be created or written to."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise NotADirectoryError(20, "is not a directory", str(there))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(there)) from error


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
