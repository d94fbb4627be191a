"""A trace's folder: Parquet files that grow by one per batch of prompts.

A row is an answer under a method: prompt_id, domain, text, prompt (token ids), temperature,
method, answer (token ids), finished ("stop" or "length"), looping, and, per position from the
answer's second token on, kept (the probability that the first, the first two, ... draft tokens are
kept) and confidences (of the drafter's favourite at each level). Every file's schema carries what
was traced, and under which settings, as JSON.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ops.harness.boundary import InputError
from schemas.json_files import parse_json, validated
from schemas.profile import ProfileMeta
from schemas.text_files import FileError, open_file

Where = Sequence[tuple[str, str, Any]]

META = b"specadapt"
LEVELS = pa.list_(pa.list_(pa.float32()))
COLUMNS = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("domain", pa.string()),
        ("text", pa.string()),
        ("prompt", pa.list_(pa.int32())),
        ("temperature", pa.float64()),
        ("method", pa.string()),
        ("answer", pa.list_(pa.int32())),
        ("finished", pa.string()),
        ("looping", pa.bool_()),
        ("kept", LEVELS),
        ("confidences", LEVELS),
    ]
)


@dataclass(frozen=True)
class TracedAnswer:
    """One row."""

    prompt_id: str
    domain: str
    text: str
    prompt: tuple[int, ...]
    temperature: float
    method: str
    answer: tuple[int, ...]
    finished: str
    looping: bool
    kept: tuple[tuple[float, ...], ...]
    confidences: tuple[tuple[float, ...], ...]


class TraceStore:
    """Appends to a trace's folder. Raises InputError if it has another bundle or other settings."""

    def __init__(self, folder: Path, meta: ProfileMeta) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._schema = COLUMNS.with_metadata({META: meta.model_dump_json().encode()})
        if files(folder):
            _refuse_other_settings(folder, read_meta(folder), meta)

    def traced(self, temperature: float) -> set[str]:
        """Return the ids of the prompts that are traced at a temperature."""
        column = "prompt_id"
        return {
            row
            for file in files(self._folder)
            for row in _table(file, [("temperature", "=", temperature)], [column])[
                column
            ].to_pylist()
        }

    def add(self, rows: Sequence[TracedAnswer]) -> None:
        """Write all methods' rows of some prompts as one file, atomically."""
        table = pa.Table.from_pylist([asdict(row) for row in rows], self._schema)
        name = f"part-{len(files(self._folder)):05d}.parquet"
        scratch = self._folder / f".{name}"
        pq.write_table(table, scratch, compression="zstd")
        scratch.rename(self._folder / name)


def files(folder: Path) -> list[Path]:
    """Return a trace's files in order."""
    return sorted(folder.glob("part-*.parquet"))


def read_meta(folder: Path) -> ProfileMeta:
    """Return a trace's metadata. Raises ValueError if the folder holds no trace."""
    found = files(folder)
    if not found:
        raise InputError(f"{folder}: holds no trace; make one with `specadapt trace`")
    place = str(found[0])
    meta = (_schema(found[0]).metadata or {}).get(META)
    if meta is None:
        raise InputError(f"{place}: no part of a trace; make one with `specadapt trace`")
    return validated(ProfileMeta, parse_json(meta.decode(errors="replace"), place), place)


def read_rows(folder: Path, where: Where | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows, with the columns named above; `where` is pyarrow's filter, such as
    [("method", "=", "naive")]. Raises FileError naming the file."""
    for file in files(folder):
        yield from _table(file, where).to_pylist()


def _schema(file: Path) -> Any:
    with _refused(file):
        found = pq.read_schema(file)
    for column in COLUMNS:
        index = found.get_field_index(column.name)
        if index < 0 or found.field(index).type != column.type:
            raise FileError(f"{file}: no column {column.name} of type {column.type}; trace again")
    return found


def _table(file: Path, where: Where | None, columns: Sequence[str] | None = None) -> Any:
    _schema(file)
    with _refused(file):
        return pq.read_table(file, columns=columns, filters=where)


@contextmanager
def _refused(file: Path) -> Iterator[None]:
    """Raise FileError naming the file for what cannot be read as Parquet."""
    open_file(file).close()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise FileError(f"{file}: cannot be read as Parquet: {error}") from error


def _refuse_other_settings(folder: Path, before: ProfileMeta, now: ProfileMeta) -> None:
    for name, old, new in (
        ("bundle", before.measured_under.bundle, now.measured_under.bundle),
        ("dtype", before.measured_under.dtype, now.measured_under.dtype),
        ("methods", before.settings_hashes, now.settings_hashes),
        ("max_tokens", before.max_tokens, now.max_tokens),
    ):
        if old != new:
            raise InputError(
                f"{folder}: {name} was {old} and is {new} now; take another --out, or the same "
                "settings"
            )
