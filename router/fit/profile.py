"""A profile: every prompt measured with every method, in a folder.

profile.json    what was measured, under which conditions
prompts.jsonl   one Prompt a line
rows.jsonl      one ProfileRow a line: a response
steps.jsonl     one StepRow a line: the step-time grid
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from router.fit.speedup import MIN_TOKENS, baseline_of
from schemas import MeasuredUnder
from schemas.base import Schema
from schemas.json_files import read_record, records
from schemas.text_files import FileError


class Prompt(Schema):
    id: str
    domain: str = ""
    text: str


class ProfileRow(Schema):
    """One response. Seconds are on one clock, from the request to its last token."""

    prompt_id: str
    method: str
    temperature: float = Field(default=0.0, ge=0.0)
    repeat: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=0)
    target_steps: float = Field(
        ge=0.0, description="prefill included; expected ones where acceptance was traced"
    )
    seconds: float = Field(gt=0.0, description="request to last token")
    prefill_seconds: float = Field(ge=0.0, description="request to first token")
    decode_seconds: float = Field(ge=0.0, description="first token to last token")
    mean_batch: float = Field(default=1.0, ge=1.0, description="sequences per decode step")
    looping: bool = False
    answer: str = Field(default="", description="hash of the answer's tokens")


class StepRow(Schema):
    """Mean seconds of one decoding step at a batch size and a context length in tokens."""

    method: str
    batch: int = Field(ge=1)
    context: int = Field(ge=1)
    seconds: float = Field(gt=0.0)
    count: int = Field(ge=1, description="steps behind the mean")
    tokens: float | None = Field(
        default=None, ge=1.0, description="that a sequence gets of a step, where it was counted"
    )


class ProfileMeta(Schema):
    measured_under: MeasuredUnder
    methods: tuple[str, ...] = Field(min_length=1)
    settings_hashes: dict[str, str]
    lossless: dict[str, bool]
    max_tokens: int = Field(ge=1)
    concurrency: int = Field(default=1, ge=1, description="requests of one method in flight")
    seed: int = 0
    provenance: dict[str, Any] = Field(default_factory=dict)


class ProfileError(ValueError):
    """The profile cannot be read or used; the message names the file or field and the fix."""


def prompt_key(text: str) -> str:
    """Return sixteen hex digits that identify a prompt's text, whatever its id."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def log_acceptance(row: ProfileRow) -> float:
    """Return the logarithm of tokens per decode step, without the prefill's; at least 0."""
    return math.log(max(1.0, (row.output_tokens - 1.0) / max(1.0, row.target_steps - 1.0)))


Cell = tuple[str, float, str]
"""Prompt id, temperature, method."""


@dataclass(frozen=True)
class Paired:
    """Speedups over the profile's baseline [n, m] on the prompts that every method answered at
    enough length."""

    prompt_ids: tuple[str, ...]
    temperatures: tuple[float, ...]
    methods: tuple[str, ...]
    speedups: NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    meta: ProfileMeta
    prompts: tuple[Prompt, ...]
    rows: tuple[ProfileRow, ...]
    steps: tuple[StepRow, ...] = ()

    def __post_init__(self) -> None:
        known = {p.id for p in self.prompts}
        if len(known) != len(self.prompts):
            raise ProfileError("prompts: an id occurs twice")
        methods = set(self.meta.methods)
        for row in self.rows:
            if row.prompt_id not in known or row.method not in methods:
                raise ProfileError(
                    f"rows: {row.prompt_id}/{row.method} names a prompt or method not listed"
                )

    @cached_property
    def cells(self) -> dict[Cell, ProfileRow]:
        """The responses by prompt id, temperature and method."""
        return {(row.prompt_id, row.temperature, row.method): row for row in self.rows}

    @property
    def baseline(self) -> str:
        """The plain method that speedups are over. Raises ValueError without one."""
        return baseline_of(self.meta.methods)

    def paired(self, methods: Sequence[str] | None = None) -> Paired:
        """Return paired speedups of the given methods (default: all) over the baseline.

        A prompt counts where the baseline and every method answered with at least MIN_TOKENS
        tokens. Raises ProfileError when there is no baseline, a method was not measured, or
        nothing is left.
        """
        wanted = tuple(self.meta.methods if methods is None else methods)
        for name in wanted:
            if name not in self.meta.methods:
                raise ProfileError(
                    f"methods: {name} is not in the profile, which has "
                    f"{', '.join(self.meta.methods)}"
                )
        ids: list[str] = []
        temperatures: list[float] = []
        values: list[list[float]] = []
        for prompt_id, temperature in sorted({(p, t) for p, t, _ in self.cells}):
            row = self._speedups(prompt_id, temperature, wanted)
            if row is not None:
                ids.append(prompt_id)
                temperatures.append(temperature)
                values.append(row)
        if not values:
            raise ProfileError(
                f"rows: no prompt has answers of {MIN_TOKENS} tokens by every method of "
                f"{', '.join(wanted)}"
            )
        return Paired(tuple(ids), tuple(temperatures), wanted, np.asarray(values))

    def _speedups(
        self, prompt_id: str, temperature: float, methods: Sequence[str]
    ) -> list[float] | None:
        rates = []
        for name in (self.baseline, *methods):
            cell = self.cells.get((prompt_id, temperature, name))
            if cell is None or cell.output_tokens < MIN_TOKENS:
                return None
            rates.append(cell.output_tokens / cell.seconds)
        return [rate / rates[0] for rate in rates[1:]]

    def only(self, ids: Collection[str]) -> Self:
        """Return the profile of the prompts with these ids.

        Raises ProfileError for an unknown id, and without ids.
        """
        missing = sorted(set(ids) - {p.id for p in self.prompts})
        if missing or not ids:
            raise ProfileError(f"ids: {missing[0]} is not in the profile" if missing else "no ids")
        wanted = set(ids)
        return replace(
            self,
            prompts=tuple(p for p in self.prompts if p.id in wanted),
            rows=tuple(r for r in self.rows if r.prompt_id in wanted),
        )

    def save(self, folder: Path) -> None:
        """Write the profile to a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "prompts.jsonl", self.prompts)
        _write(folder / "rows.jsonl", self.rows)
        _write(folder / "steps.jsonl", self.steps)
        text = self.meta.model_dump_json(indent=2) + "\n"
        (folder / "profile.json").write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a profile. Raises ProfileError naming the file and line that is malformed."""
        meta = folder / "profile.json"
        if not meta.is_file():
            raise ProfileError(f"{folder} is not a profile: profile.json is missing")
        try:
            parsed = read_record(meta, ProfileMeta)
        except FileError as error:
            raise ProfileError(str(error)) from error
        return cls(
            meta=parsed,
            prompts=tuple(records(folder / "prompts.jsonl", Prompt, ProfileError, key="id")),
            rows=tuple(records(folder / "rows.jsonl", ProfileRow, ProfileError)),
            steps=tuple(records(folder / "steps.jsonl", StepRow, ProfileError)),
        )


def _write(path: Path, items: Iterable[Schema]) -> None:
    path.write_text("".join(item.model_dump_json() + "\n" for item in items), encoding="utf-8")
