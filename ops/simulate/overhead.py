"""What a service adds to its engines' seconds, and what it shares with them."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from ops.harness.boundary import InputError
from ops.simulate.costs import RowCosts, StepCosts
from schemas.base import Schema
from schemas.json_files import read_record
from schemas.text_files import FileError


class Overhead(Schema):
    """Seconds are of work on one core; the defaults add nothing. `specadapt calibrate` finds them
    from load tests of a service."""

    request_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="HTTP, ingress and routing, until a replica has the request",
    )
    reply_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="from the last token until the client has the whole answer, on the wall's "
        "clock, beyond what the first token takes",
    )
    step_factor: float = Field(
        default=1.0, gt=0.0, description="a replica's steps and prefills over those profiled"
    )
    sequence_seconds: float = Field(
        default=0.0, ge=0.0, description="for each sequence in a decode step, whose tokens are sent"
    )
    stream_seconds: float = Field(
        default=0.0,
        ge=0.0,
        description="the same beside the replica, which goes on: ingress, HTTP and client pass on "
        "what a step has emitted, and take from the cores that all share",
    )
    cores: float | None = Field(
        default=None,
        gt=0.0,
        description="that replicas and requests on their way share; null: nobody is slowed down. "
        "Two threads of a core, or cores that share their caches, are fewer than there are",
    )
    crowding: float = Field(
        default=0.0,
        ge=0.0,
        description="share by which everybody's work takes longer still for each thread that is "
        "more than cores: they turn each other's weights out of the caches",
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


class ServedRowCosts(ServedCosts):
    """The same of costs by rows and drafters."""

    def __init__(self, costs: RowCosts, overhead: Overhead) -> None:
        super().__init__(costs, overhead)
        self._by_rows = costs

    def forward(self, sequences: int, context: float, rows: float, /) -> float:
        """See RowCosts."""
        seconds = self._by_rows.forward(sequences, context, rows)
        return self._factor * seconds + self._sequence * sequences

    def drafting(self, drafter: str, forward: float, /) -> float:
        """See RowCosts."""
        return self._factor * self._by_rows.drafting(drafter, forward / self._factor)


def read_overhead(file: Path | None) -> Overhead:
    """Of a file that `specadapt calibrate` wrote; nothing is added without one. Raises InputError
    for another file."""
    if file is None:
        return NOTHING
    try:
        return read_record(file, Overhead)
    except FileError as error:
        raise InputError(f"--overhead: no output of `specadapt calibrate`: {error}") from error
