"""Turn exceptions into one line on standard error and an exit status."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from ops.harness.parameter_checks import check_all

TRACEBACK_VARIABLE = "SPECADAPT_TRACEBACK"


class InputError(ValueError):
    """Raised for unusable input; the message names it and says how to fix it."""


class CommandGroup(TyperGroup):
    """A command group that reports bad input as one line with exit status 2.

    Every ValueError and every file that cannot be opened counts as bad input. With
    SPECADAPT_TRACEBACK=1 the exception is raised, to find its origin.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_all(self, InputError)

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
        except typer.Abort:
            status = 130
        if not standalone:
            return status
        sys.exit(status if isinstance(status, int) else 0)


def describe(error: Exception) -> str:
    """Describe an error in a line: `field: problem` for a schema, `path: problem` for a file.

    A pydantic ValidationError is recognised by its `errors()`, so that commands that validate
    nothing do not import pydantic.
    """
    if hasattr(error, "errors") and callable(error.errors):
        return "; ".join(_field_problem(item) for item in error.errors())
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def show_help(context: typer.Context) -> None:
    """Print a group's help if no command is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _field_problem(item: dict[str, Any]) -> str:
    problem = str(item["msg"]).removeprefix("Value error, ")
    field = ".".join(str(part) for part in item["loc"])
    return f"{field}: {problem}" if field else problem


def _refuse(message: str) -> int:
    typer.echo(f"specadapt: {' '.join(message.split())}", err=True)
    return 2
