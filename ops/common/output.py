"""Output of commands: tables for people, JSON for programs, progress on standard error."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ops.common.boundary import STANDARD_OUTPUT

_BEGAN = time.monotonic()


def emit(
    figures: object, tables: Callable[[], Iterable[Group | str]], json_path: Path | None
) -> None:
    """Print the tables, and write the same figures as JSON where `--json` asks for it.

    With `--json -` the JSON is all that goes to standard output.
    """
    if json_path == STANDARD_OUTPUT:
        typer.echo(json.dumps(figures, indent=2))
        return
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
        json_path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    console = Console()
    for table in tables():
        console.print(table)


def say(text: str) -> None:
    """Print a progress line on standard error."""
    typer.echo(text, err=True)


def stage(text: str) -> None:
    """Print what a start does, after the command's seconds until now."""
    typer.echo(f"{time.monotonic() - _BEGAN:5.1f} s  {text}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Group:
    """Return a title above a table with numbers aligned right and text left."""
    result = Table()
    for index, column in enumerate(columns):
        figures = any(isinstance(row[index], int | float) for row in rows)
        result.add_column(column, justify="right" if figures else "left", overflow="fold")
    for row in rows:
        result.add_row(*(escape(cell(value)) for value in row))
    return Group(title, result)


def cell(value: Any) -> str:
    """Format a value for people: three significant digits, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def with_interval(value: float | None, interval: Sequence[float] | None) -> str:
    """Format a ratio with its interval for people: `1.234 (1.100 to 1.300)`, a dash for None."""
    if value is None or interval is None:
        return cell(value)
    low, high = interval
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def progress() -> Progress:
    """Return a progress bar with elapsed and remaining time on standard error, for terminals."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


@contextmanager
def standard_output_kept() -> Iterator[None]:
    """Send what libraries and child processes print to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def quiet_transformers() -> None:
    """Keep the advice and the bars of transformers off standard error."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
