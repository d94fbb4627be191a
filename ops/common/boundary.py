"""What every command checks first, and exceptions as one line on standard error."""

import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

TRACEBACK_VARIABLE = "SPECADAPT_TRACEBACK"
LARGEST = 2**53
"""Integers up to here are exact as floats, and fit what they are handed to."""
EXTRAS = {
    "grafana_api": "dashboards",
    "matplotlib": "report",
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "exporting"),
}
"""Extras of the package by the modules that they bring."""
OUTPUTS = ("json", "out")
STANDARD_OUTPUT = Path("-")


class InputError(ValueError):
    """Raised for unusable input; the message names it and says how to fix it."""


class CommandGroup(TyperGroup):
    """A command group that reports bad input as one line with exit status 2.

    Every ValueError and every file that cannot be opened counts as bad input. With
    SPECADAPT_TRACEBACK=1 the exception is raised, to find its origin.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_all(self)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        standalone = kwargs.pop("standalone_mode", True)
        try:
            status = super().main(*args, **{**kwargs, "standalone_mode": False})
        except typer.TyperException as error:
            status = _refuse(error.format_message())
        except (ValueError, OSError) as error:
            if os.environ.get(TRACEBACK_VARIABLE) == "1":
                raise
            status = _refuse(describe(error))
        except ModuleNotFoundError as error:
            if error.name not in EXTRAS:
                raise
            fix = f"pip install 'specadapt[{EXTRAS[error.name]}]'"
            status = _refuse(f"{error.name} is not installed: {fix}")
        except typer.Abort:
            status = 130
        if not standalone:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def describe(error: Exception) -> str:
    """Describe an error in a line: `field: problem` for a schema, `path: problem` for a file."""
    from pydantic import ValidationError  # not before: commands start without it

    if isinstance(error, ValidationError):
        from schemas.base import problems

        return "; ".join(problems(error))
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _refuse(message: str) -> int:
    typer.echo(f"specadapt: {' '.join(message.split())}", err=True)
    return 2


def _check_all(group: TyperGroup) -> None:
    """Make every command of a group check its parameters first."""
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            _check_all(command)
        elif command.callback is not None:
            command.callback = _checking(command.params, command.callback)


def _checking(params: Sequence[Any], run: Callable[..., Any]) -> Callable[..., Any]:
    folders = {str(p.name) for p in params if p.name in OUTPUTS and p.metavar == "DIR"}

    @wraps(run)
    def checked(**values: Any) -> Any:
        for name, value in values.items():
            if problem := _problem(name, value, folders):
                raise InputError(f"--{name.replace('_', '-')}: {problem}")
        return run(**values)

    return checked


def _problem(name: str, value: Any, folders: set[str]) -> str | None:
    """Return what is wrong with a parameter's value, or would keep a result from being written."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"expected a finite number, not {value}"
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"expected a number of at most {LARGEST}, not {value}"
    if name == "url" and value is not None:
        from schemas.config import is_address  # not before: commands start without pydantic

        if not is_address(value):
            return f"give an address such as http://127.0.0.1:8000, not {value!r}"
    if name in OUTPUTS and isinstance(value, Path) and value != STANDARD_OUTPUT:
        try:
            _check_folder(value) if name in folders else _check_file(value)
        except OSError as error:
            return f"{error.filename or value}: {error.strerror}"
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
