"""What a service adds to its engines' seconds, and what it shares with them."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from ops.harness.boundary import InputError
from ops.simulate.costs import StepCosts
from schemas.base import Schema
from schemas.json_files import read_record
from schemas.text_files import FileError


class Overhead(Schema):
    """What a service adds to its engines' time, as `specadapt calibrate` estimates it.

    Seconds are of work on one core. The defaults add nothing.
    """

    request_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="HTTP, ingress and routing, until a replica has the request",
    )
    reply_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="wall seconds from the last token until the client has the whole answer, "
        "beyond those of the first token",
    )
    step_factor: float = Field(
        default=1.0, gt=0.0, description="factor on profiled steps and prefills"
    )
    sequence_seconds: float = Field(
        default=0.0, ge=0.0, description="per sequence in a decode step, to send its tokens"
    )
    stream_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="per sequence in a decode step, in parallel with the replica: ingress, HTTP "
        "and client forward the tokens on the shared cores",
    )
    cores: float | None = Field(
        default=None,
        gt=0.0,
        description="number of cores that replicas and requests share; null: unlimited. Hardware "
        "threads and cores with shared caches count for less than one",
    )
    crowding: float = Field(
        default=0.0,
        ge=0.0,
        description="relative slow-down for each thread beyond the number of cores, since threads "
        "evict each other's caches",
    )


NOTHING = Overhead()
"""Engines alone."""


class ServedCosts:
    """Step costs as they are within a service."""

    def __init__(self, costs: StepCosts, overhead: Overhead) -> None:
        self._costs = costs
        self._factor, self._sequence = overhead.step_factor, overhead.sequence_seconds

    def prefill(self, method: int, prompt_tokens: int, /) -> float:
        """See StepCosts."""
        return self._factor * self._costs.prefill(method, prompt_tokens)

    def step(self, counts: Sequence[int], context: float, rows: float, /) -> float:
        """See StepCosts."""
        return self._factor * self._costs.step(counts, context, rows) + self._sequence * sum(counts)


def read_overhead(file: Path | None) -> Overhead:
    """Read a file of `specadapt calibrate`; None adds nothing. Raises InputError."""
    if file is None:
        return NOTHING
    try:
        return read_record(file, Overhead)
    except FileError as error:
        raise InputError(f"--overhead: not written by `specadapt calibrate`: {error}") from error
