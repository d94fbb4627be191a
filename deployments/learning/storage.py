"""The learned state in a store that may fail or hang: every call ends in time.

A call that hangs keeps its own thread, and no other call is made before it ends. A hung mount
therefore costs one thread, and no second call waits for it.
"""

import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from deployments.learning.state_store import (
    Occasion,
    StateStore,
    StoreAwayError,
    SupersededError,
    UnknownSnapshotError,
    file_system,
)
from schemas import RoutingTable, Snapshot

logger = logging.getLogger(__name__)

CALL_SECONDS = 2.0
"""Less than the time an ingress waits for the feedback actor."""

Result = TypeVar("Result")


class Storage:
    """Access the active state and the snapshots as one owner.

    A call blocks for at most CALL_SECONDS. Not safe for concurrent calls. owner: see StateStore.
    """

    def __init__(self, state_uri: str, fit_id: str, owner: str | None = None) -> None:
        self.uri = f"{state_uri}/{fit_id}"
        self._owner = owner
        self._store: StateStore | None = None
        self._claimed: tuple[StateStore, dict[str, Any] | None, str | None] | None = None
        """An open store, its state, and why its owner may not learn, if so."""
        self._call: Future[Any] | None = None
        self.superseded = False
        self.problem: str | None = None
        """Why nothing is stored at present."""
        self.stored: frozenset[str] = frozenset()
        """Ids of the observations that came into the store last."""

    @property
    def opened(self) -> bool:
        return self._store is not None

    @property
    def epoch(self) -> int:
        """Return the owner's epoch; 0 before the store was opened."""
        return 0 if self._store is None else self._store.epoch

    @property
    def snapshot_due(self) -> bool:
        """Return whether it is time for another snapshot."""
        return self._store is not None and self._store.snapshot_due

    def open(self) -> dict[str, Any] | None:
        """Become the owner and return the state to continue with, None if there is none.

        A superseded owner gets the state too. Raises StoreAwayError; a claim that takes longer goes
        on, and a later call returns its state.
        """
        if self._claimed is None:
            self._within(self._claim)
        assert self._claimed is not None
        self._store, state, superseded = self._claimed
        self._tell(None)
        if superseded is not None:
            self._give_up(superseded)
        return state

    def save(self, state: dict[str, Any], learned: frozenset[str]) -> None:
        """Replace the stored state. Raises SupersededError and StoreAwayError.

        learned: ids of the observations in the state that were not stored before.
        """
        store = self._there()

        def save() -> None:
            store.save(state)
            self.stored = learned  # even if the caller has stopped waiting

        self._as_owner(save)

    def keep(self, state: dict[str, Any], table: RoutingTable, occasion: Occasion) -> None:
        """Add a snapshot. Raises SupersededError and StoreAwayError."""
        self._as_owner(partial(self._there().keep, state, table, occasion))

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots, the newest first. Raises StoreAwayError."""
        return self._within(self._there().snapshots)

    def snapshot(self, number: int) -> dict[str, Any]:
        """Return what a snapshot holds. Raises UnknownSnapshotError and StoreAwayError."""
        return self._within(partial(self._there().snapshot, number))

    def _claim(self) -> None:
        store = StateStore(self.uri, self._owner)
        superseded = None
        try:
            state = store.claim()
        except SupersededError as error:
            superseded, state = str(error), store.read()
        self._claimed = store, state, superseded

    def _there(self) -> StateStore:
        if self._store is None:
            raise StoreAwayError(self.problem or f"{self.uri} is not open")
        return self._store

    def _as_owner(self, write: Callable[[], None]) -> None:
        try:
            self._within(write)
        except SupersededError as error:
            self._give_up(str(error))
            raise

    def _give_up(self, why: str) -> None:
        self.superseded = True
        self._tell(f"no longer learning: {why}")

    def _within(self, call: Callable[[], Result]) -> Result:
        try:
            if self._call is not None and not self._call.done():
                raise StoreAwayError(f"{self.uri} still does not answer")
            self._call = made = in_thread(call)
            result = ended(made, CALL_SECONDS, self.uri)
        except StoreAwayError as error:
            self._tell(str(error))
            raise
        if not self.superseded:
            self._tell(None)
        return result

    def _tell(self, problem: str | None) -> None:
        if problem is not None and self.problem is None:
            logger.warning("nothing is stored until this is fixed: %s", problem)
        elif problem is None and self.problem is not None:
            logger.info("the store is back: %s", self.uri)
        self.problem = problem


def in_thread(call: Callable[[], Result]) -> Future[Result]:
    """Call in a daemon thread, so that neither callers nor the process's end wait for it."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def ended(call: Future[Result], seconds: float, uri: str) -> Result:
    """Return the result of a store's call within `seconds`.

    Raises StoreAwayError for the store's own failures; SupersededError and UnknownSnapshotError
    pass through.
    """
    try:
        return call.result(seconds)
    except (SupersededError, UnknownSnapshotError, StoreAwayError):
        raise
    except TimeoutError as error:
        raise StoreAwayError(f"{uri} has not answered for {seconds:.0f} s") from error
    except Exception as error:  # each file system has exceptions of its own
        raise StoreAwayError(f"{uri}: {str(error) or type(error).__name__}") from error


def check_store(uri: str, seconds: float) -> None:
    """Open the store, write a file and remove it. Raises StoreAwayError."""

    def write() -> None:
        fs, folder = file_system(uri)
        missing = []
        while folder and not fs.exists(folder):
            missing.append(folder)
            folder = fs._parent(folder)
        place = missing[0] if missing else folder
        fs.makedirs(place, exist_ok=True)
        try:
            probe = f"{place}/probe-{uuid.uuid4().hex}"
            fs.pipe_file(probe, b"")
            fs.rm_file(probe)
        finally:
            for made in missing:
                with suppress(OSError):  # an object store has no folders to remove
                    fs.rmdir(made)

    ended(in_thread(write), seconds, uri)
