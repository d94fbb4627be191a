"""What service shows of heads, which survives a restart of the drafters' actor."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from deployments.learning.file_system import file_system, replace_file
from schemas import HeadPart, LoadReport
from schemas.base import Schema

logger = logging.getLogger(__name__)

REPLICAS = 200
"""Replicas whose last counts are remembered, those that reported last; more if more report."""
FILE = "canaries.json"

SUMS = ("answers", "steps", "tokens", "steps_squared", "tokens_squared", "steps_times_tokens")
"""Fields of HeadCounts in the order of `Sums`."""
Sums = NDArray[np.float64]
Numbers = tuple[float, float, float, float, float, float]
Version = tuple[str, int]
"""A part and the number of its version."""
EVERY: Version = "all", 0
"""Key of the answers of all methods, whose other sums are 0."""


class Counted(Schema):
    """The sums of one version."""

    part: str
    version: int
    sums: Numbers


class Trial(Schema):
    """A canary and the version in force, with what was counted before the canary was seen.

    answers: those of all methods before.
    """

    numbers: tuple[int, int]
    before: tuple[Numbers, Numbers]
    answers: float = 0.0


class Watch(Schema):
    """A promoted version, what heads did before, at first in the trial, and what was counted before
    the present comparison."""

    number: int
    expected: Numbers
    before: Numbers


class Evidence(Schema):
    """All that a judge of canaries knows. replicas: their last counts."""

    replicas: dict[str, tuple[Counted, ...]] = Field(default={})
    total: tuple[Counted, ...] = ()
    trials: dict[HeadPart, Trial] = Field(default={})
    watched: dict[HeadPart, Watch] = Field(default={})


class EvidenceStore:
    """The file of a store of versions that holds the evidence. Raises what its file system raises.

    uri: of the store of versions.
    """

    def __init__(self, uri: str) -> None:
        self._fs, root = file_system(uri)
        self._folder, self._path = root, f"{root}/{FILE}"

    def read(self) -> Evidence:
        """Return what was saved; nothing where there is no readable file."""
        try:
            return Evidence.model_validate_json(self._fs.cat_file(self._path))
        except (FileNotFoundError, NotADirectoryError):
            return Evidence()
        except ValueError as error:
            logger.error("%s is unreadable (%s): canaries are judged anew", self._path, error)
            return Evidence()

    def save(self, evidence: Evidence) -> None:
        """Replace what was saved."""
        self._fs.makedirs(self._folder, exist_ok=True)
        replace_file(self._fs, self._path, evidence.model_dump_json().encode())


class Ledger:
    """Add up what replicas count since their start. What a replica counted stays when it ends."""

    def __init__(self, evidence: Evidence | None = None) -> None:
        saved = evidence or Evidence()
        self._last = {replica: _read(counted) for replica, counted in saved.replicas.items()}
        self._total = _read(saved.total)

    def add(self, reports: Sequence[LoadReport]) -> None:
        """Take the newest report of each replica."""
        for report in reports:
            before = self._last.pop(report.replica, {})
            now = {
                (one.part, one.version): np.array([getattr(one, name) for name in SUMS], float)
                for one in report.heads
            }
            now[EVERY] = np.array([report.answers, *[0.0] * (len(SUMS) - 1)])
            for key, sums in now.items():
                self._total[key] = self.of(*key) + sums - before.get(key, 0.0)
            self._last[report.replica] = now
        while len(self._last) > max(REPLICAS, len(reports)):
            del self._last[next(iter(self._last))]

    def of(self, part: str, version: int) -> Sums:
        """Return the sums of a version [6]."""
        return self._total.get((part, version), np.zeros(len(SUMS)))

    def evidence(self, versions: Collection[Version]) -> Evidence:
        """Return what is known of some versions."""
        replicas = {name: _written(counts, versions) for name, counts in self._last.items()}
        return Evidence(replicas=replicas, total=_written(self._total, versions))


def numbers(sums: Sums) -> Numbers:
    """Return sums as they are saved."""
    answers, steps, tokens, steps_squared, tokens_squared, products = map(float, sums)
    return answers, steps, tokens, steps_squared, tokens_squared, products


def _written(counts: Mapping[Version, Sums], versions: Collection[Version]) -> tuple[Counted, ...]:
    return tuple(
        Counted(part=part, version=version, sums=numbers(sums))
        for (part, version), sums in counts.items()
        if (part, version) in versions
    )


def _read(counted: Iterable[Counted]) -> dict[Version, Sums]:
    return {(one.part, one.version): np.array(one.sums) for one in counted}
