"""Versions of the heads of a shared engine, which drafts with one version of each at a time."""

import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from schemas import MethodSpec
from workers.bundle import Bundle, BundleError
from workers.head_files import refuse_not_finite, refuse_other_shapes
from workers.portfolio import exchanged_parts

log = logging.getLogger(__name__)

TURN_BATCHES = 4
"""Requests of a canary's turn, in full batches. Those that run when a turn begins or ends count for
no version, so a turn has to be longer than a batch."""
WITH_KV = ("eagle", "eagle3")
"""Parts whose keys and values are in the prefix cache."""

Load = Callable[[str, Path], Awaitable[object]]
"""Load a part's head from a folder into the engine's processes, between two steps."""
Seen = Mapping[str, tuple[int | None, int]]
"""Versions that draft when a request begins, with how often each part's head had changed."""


class ExchangedHeads:
    """Exchange the heads of a shared engine, and tell which version drafted for a request.

    A proposer of vLLM's has one set of weights. A canary therefore drafts for all requests in its
    turns: it has the first ones of every round of requests, as many as its share. Rounds of several
    replicas begin at different requests. The first turn begins at once: a round may be longer than
    the trial of a canary.

    Everything but `refuse_misfit` belongs to the event loop of the requests.
    """

    def __init__(
        self,
        specs: Sequence[MethodSpec],
        bundle: Bundle,
        load: Load,
        max_batch: int,
        replica: str,
    ) -> None:
        self._of_method = exchanged_parts(specs, bundle)
        self._own: dict[str, Path] = {
            p: bundle.part(p) for parts in self._of_method.values() for p in parts
        }
        turn = TURN_BATCHES * max_batch
        self._heads = {
            part: _Head(part, own, load, turn, replica) for part, own in self._own.items()
        }

    @property
    def parts(self) -> frozenset[str]:
        """Return the bundle's parts whose heads can be exchanged."""
        return frozenset(self._heads)

    def refuse_misfit(self, part: str, folder: Path) -> None:
        """Raise BundleError for a head that does not fit or holds NaN. Safe in any thread."""
        if folder != self._own[part]:
            refuse_other_shapes(folder, self._own[part])
            refuse_not_finite(folder)

    async def exchange(self, part: str, version: int, folder: Path, share: float) -> None:
        """See workers.engine.HeadExchanger; the head fits."""
        await self._heads[part].exchange(_Version(version, folder), share)

    async def begin(self, method: str) -> Seen:
        """Return the versions that draft for a new request of a method. Submit it at once."""
        parts = self._of_method.get(method, ())
        return {part: await self._heads[part].begin() for part in parts}

    def drafted(self, seen: Seen) -> dict[str, int]:
        """Return by part the version that drafted for an ended request, without parts whose head
        has changed meanwhile."""
        return {
            part: version
            for part, (version, changes) in seen.items()
            if version is not None and changes == self._heads[part].changes
        }


def heads_salt(seen: Seen) -> str | None:
    """Return what keeps the versions' keys and values apart in the prefix cache."""
    names = [f"{part}-{v}" for part, (v, _) in seen.items() if v and part in WITH_KV]
    return " ".join(names) or None


@dataclass(frozen=True)
class _Version:
    number: int
    folder: Path


@dataclass
class _Turns:
    """A canary's turns: the first `length` requests, and of every round of `length` / share.

    offset: place of the first request in its round.
    """

    canary: _Version
    share: float
    length: int
    offset: int
    begun: int = 0

    def next(self) -> bool:
        """Return whether the next request is the canary's."""
        place = (self.offset + self.begun) % round(self.length / self.share)
        self.begun += 1
        return min(self.begun - 1, place) < self.length


class _Head:
    """The versions of one part. changes: how often its weights have changed."""

    def __init__(self, part: str, own: Path, load: Load, turn: int, replica: str) -> None:
        self.changes = 0
        self._part, self._load, self._turn = part, load, turn
        self._first = zlib.crc32(f"{part} {replica}".encode())
        self._in_force = _Version(0, own)
        self._loaded: _Version | None = self._in_force
        self._turns: _Turns | None = None

    async def exchange(self, version: _Version, share: float) -> None:
        if share < 1.0:
            self._turns = _Turns(version, share, self._turn, self._first)
            return
        before, self._in_force, self._turns = self._in_force, version, None
        try:
            await self._put(version)
        except Exception as error:  # vLLM raises many kinds
            self._in_force = before
            await self._put(before)
            raise BundleError(f"{version.folder}: vLLM did not load it: {error}") from error

    async def begin(self) -> tuple[int | None, int]:
        if self._turns is not None:
            await self._take_turns(self._turns)
        return None if self._loaded is None else self._loaded.number, self.changes

    async def _take_turns(self, turns: _Turns) -> None:
        wanted = turns.canary if turns.next() else self._in_force
        try:
            await self._put(wanted)
        except Exception as error:  # vLLM raises many kinds
            self._turns = None
            log.error("the canary %d of %s ends here: %s", turns.canary.number, self._part, error)
            with suppress(Exception):  # without a head the drafter drafts nothing that is right
                await self._put(self._in_force)

    async def _put(self, version: _Version) -> None:
        """Load a version unless it is loaded. Requests that are submitted after the call begins
        are decoded after it."""
        if version == self._loaded:
            return
        self._loaded = version
        self.changes += 1
        try:
            await self._load(self._part, version.folder)
        except Exception:
            self._loaded = None
            self.changes += 1
            raise
