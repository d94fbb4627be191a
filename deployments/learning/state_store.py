"""The feedback actor's state in a folder given by an fsspec URI.

Each owner claims an epoch and writes only its own file, `state-<epoch>.json`; the highest epoch is
in force. An older owner (of a cluster being replaced, or a process thought dead) can therefore
never overwrite a newer one's state, even on stores without locks. An owner that restarts claims
another epoch, but not over an owner that first came after it: `owner-<name>` holds the epoch that
an owner came with.
"""

import json
import logging
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from deployments.learning.file_system import create_file, file_system, replace_file
from schemas.json_files import parse_json

logger = logging.getLogger(__name__)

_NAME = re.compile(r"state-(\d{10})\.json$")
_OWNER = re.compile(r"owner-(\w+)$")
_KEPT = 3
_OWNERS_KEPT = 16


class SupersededError(RuntimeError):
    """A newer owner has claimed the state; this one must stop learning."""


class StateStore:
    """Read and write the state under `uri` as one owner; not safe for concurrent calls.

    owner: its name (letters and digits), the same after a restart; by default a new one.
    """

    def __init__(self, uri: str, owner: str | None = None) -> None:
        self._fs, self._folder = file_system(uri)
        self._owner = owner or uuid.uuid4().hex
        self.epoch = 0

    def claim(self) -> dict[str, Any] | None:
        """Become the owner and return the last readable state, None if there is none.

        The previous owner is superseded from here on. Raises SupersededError if another owner
        claims at the same time and comes later, or has come since this one first did.
        """
        self._fs.makedirs(self._folder, exist_ok=True)
        came = self._owners()
        if self._owner in came and came[self._owner] < max(came.values()):
            raise SupersededError("another owner has come since this one was first started")
        while True:
            epochs = self._epochs()
            self.epoch = (epochs[-1] if epochs else 0) + 1
            try:
                create_file(self._fs, self._path(self.epoch), _encoded(None))
                break
            except FileExistsError:
                continue
        if self._owner not in came:
            replace_file(self._fs, f"{self._folder}/owner-{self._owner}", _encoded(self.epoch))
        # Read only now: what the owner before saves from here on it is told to be lost.
        state = self._newest_readable(epochs)
        self.save(state)
        self._tidy([self._path(old) for old in epochs[: -(_KEPT - 1)]])
        oldest_first = sorted(came, key=lambda owner: came[owner])
        self._tidy([f"{self._folder}/owner-{name}" for name in oldest_first[:-_OWNERS_KEPT]])
        return state

    def read(self) -> dict[str, Any] | None:
        """Return the last readable state of any owner, None if there is none."""
        return self._newest_readable(self._epochs())

    def save(self, state: dict[str, Any] | None) -> None:
        """Replace this owner's state atomically. Raises SupersededError if it is no longer the
        owner."""
        if self._superseded():
            raise SupersededError(f"a later owner has taken over from epoch {self.epoch}")
        replace_file(self._fs, self._path(self.epoch), _encoded(state))

    def _superseded(self) -> bool:
        """Return whether another owner has claimed the state since.

        It claims the next epoch, so two looks at single files are enough, which object stores
        charge far less for than for a list. Only if owners after it have tidied this one's file
        away may the next one's be gone too.
        """
        self._fs.invalidate_cache(self._folder)
        if self._fs.exists(self._path(self.epoch + 1)):
            return True
        there = self._fs.exists(self._path(self.epoch))
        return not there and max(self._epochs(), default=0) > self.epoch

    def _epochs(self) -> list[int]:
        return sorted(int(m[1]) for m in map(_NAME.search, self._paths()) if m)

    def _owners(self) -> dict[str, int]:
        """Return the epoch that each owner first came with."""
        found = {}
        for path in self._paths():
            if named := _OWNER.search(path):
                with suppress(FileNotFoundError, ValueError):
                    found[named[1]] = int(json.loads(self._fs.cat_file(path)))
        return found

    def _paths(self) -> list[str]:
        """Return the files in the folder."""
        self._fs.invalidate_cache(self._folder)
        try:
            paths: list[str] = self._fs.ls(self._folder, detail=False)
        except FileNotFoundError:  # an object store has no empty folders
            return []
        return paths

    def _tidy(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.rm_file(path)

    def _newest_readable(self, epochs: list[int]) -> dict[str, Any] | None:
        for epoch in reversed(epochs):
            path = self._path(epoch)
            try:
                state = checked_state(read_strictly(self._fs.cat_file(path), path))
            except FileNotFoundError:
                continue  # another claim has tidied it away
            except ValueError as error:
                logger.error("state %s is unreadable (%s); trying the one before", path, error)
                continue
            if state is not None:
                return state
        return None

    def _path(self, epoch: int) -> str:
        return f"{self._folder}/state-{epoch:010d}.json"


def read_strictly(raw: bytes, path: str) -> Any:
    """Return a JSON value. Raises ValueError, for NaN and infinity too: one in a state would make
    every prediction NaN, and with it every request fail."""
    return parse_json(raw.decode(), path)


def checked_state(value: Any) -> dict[str, Any] | None:
    """Return a stored state, None for that of an owner who has learned nothing. Raises ValueError
    for anything else: it could not be compared with others."""
    if value is None or (isinstance(value, dict) and type(value.get("version", 0)) is int):
        return value
    raise ValueError("not a state: it is no object, or its version is no whole number")


def _encoded(value: dict[str, Any] | int | None) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
