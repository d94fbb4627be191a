"""The store of head versions: weights with their origin, and which of them are active."""

import logging
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fsspec.implementations.local import LocalFileSystem

from deployments.learning.state_store import (
    create_file,
    file_system,
    listed,
    remove_files,
    replace_file,
)
from schemas import (
    Canary,
    FeedbackConfig,
    HeadOrigin,
    HeadPart,
    HeadsInForce,
    HeadVersion,
    PastRounds,
)
from workers.bundle import user_cache

logger = logging.getLogger(__name__)

KEPT = 20
"""Versions that stay in the store, with those in service; and revisions of what is active."""
MANIFEST, CLAIM = "version.json", "claim"
_VERSION = re.compile(r"head-(\d{6})$")
_REVISION = re.compile(r"in-force-(\d{8})\.json$")


class UnknownVersionError(LookupError):
    """The version does not exist or has no readable manifest; the message lists the others."""


class VersionStore:
    """Read and write the versions of a target's heads.

    A version is a folder with the head's files and a manifest. It exists once the manifest is
    there, which is written last. What is active is the file `in-force-<revision>.json` with the
    highest revision: a change creates the next one, which fails if another process has created it.

    Methods raise whatever the file system raises. Not safe for concurrent calls.
    target: its hash, of `target_hash`: another target may have had the bundle's name before.
    cache: folder for versions of a remote store, by default in the user's cache.
    """

    def __init__(
        self,
        feedback: FeedbackConfig,
        bundle_name: str,
        target: str,
        cache: Path | None = None,
    ) -> None:
        self.uri = f"{feedback.state_uri}/drafters/{bundle_name}/versions/{target}"
        self._fs, self._root = file_system(self.uri)
        place = sha256(self.uri.encode()).hexdigest()[:16]
        self._cache = (cache or Path(user_cache("heads"))) / place

    def add(self, head: Path, origin: HeadOrigin) -> HeadVersion:
        """Store the files of a head's folder as a new version, which does not serve yet.

        Older versions beyond KEPT are deleted. Raises what the file system raises, and then leaves
        no files, as far as that is possible.
        """
        number = self._claimed_number()
        version = HeadVersion(number=number, **dict(origin))
        try:
            for file in sorted(path for path in head.iterdir() if path.is_file()):
                self._fs.put_file(str(file), f"{self._path(number)}/{file.name}")
            body = version.model_dump_json().encode()
            replace_file(self._fs, f"{self._path(number)}/{MANIFEST}", body)
        except Exception:
            with suppress(Exception):
                self._fs.rm(self._path(number), recursive=True)
            raise
        self._delete_old_versions()
        return version

    def all(self) -> list[HeadVersion]:
        """Return the versions, the newest first."""
        found = []
        for number in reversed(self._numbers(_VERSION)):
            with suppress(UnknownVersionError):
                found.append(self._read(number))
        return found

    def get(self, number: int) -> HeadVersion:
        """Return a version. Raises UnknownVersionError."""
        try:
            return self._read(number)
        except UnknownVersionError as error:
            there = ", ".join(str(version.number) for version in self.all()) or "none"
            raise UnknownVersionError(f"{error} in {self.uri} (there are {there})") from None

    def folder(self, number: int) -> Path:
        """Return a local folder with a version's files, which is downloaded if the store is remote.

        Raises UnknownVersionError.
        """
        version = self.get(number)
        if isinstance(self._fs, LocalFileSystem):
            return Path(self._path(number))
        # In a store that was emptied, numbers begin again.
        local = self._cache / f"{_name(number)}-{version.created}"
        if not local.is_dir():
            self._download(number, local)
        return local

    def in_force(self) -> HeadsInForce:
        """Return which versions are active."""
        for revision in reversed(self._numbers(_REVISION)):
            path = self._revision_path(revision)
            with suppress(FileNotFoundError):  # another process has deleted it as an old one
                try:
                    return HeadsInForce.model_validate_json(self._fs.cat_file(path))
                except ValueError as error:
                    logger.error("%s is unreadable (%s); using the one before", path, error)
        return HeadsInForce()

    def promote(self, number: int, seen: HeadsInForce | None = None) -> HeadsInForce:
        """Make a version the active one, which ends its part's canary.

        seen: if given, nothing changes unless it is still active. Raises UnknownVersionError.
        """
        part = self.get(number).part
        return self._change(lambda heads: _with(heads, part, number), seen)

    def try_out(self, number: int, share: float) -> HeadsInForce:
        """Make a version the canary of its part. Raises UnknownVersionError."""
        part, canary = self.get(number).part, Canary(number=number, share=share)
        return self._change(lambda heads: _with(heads, part, heads.number(part), canary))

    def roll_back(self, part: HeadPart, seen: HeadsInForce | None = None) -> HeadsInForce:
        """End a part's canary or, if there is none, return from the active version to its parent.

        A parent that is no longer in the store is replaced by the bundle's own head. seen: as in
        `promote`. Raises ValueError if the bundle's own head is active.
        """
        return self._change(lambda heads: self._rolled_back(heads, part), seen)

    def pause(self, paused: bool) -> HeadsInForce:
        """Pause training, or let it go on. Active versions stay."""
        return self._change(lambda heads: heads.model_copy(update={"paused": paused}))

    def train(self, part: HeadPart | None) -> HeadsInForce:
        """Note the head that is trained, or will be as soon as possible; None: no longer."""
        return self._change(lambda heads: heads.model_copy(update={"training": part}))

    def round_ended(self, part: HeadPart, seen: float, better: bool) -> HeadsInForce:
        """Record a round that gave a better head, or none. seen: time of its newest sample."""

        def ended(heads: HeadsInForce) -> HeadsInForce:
            before = heads.rounds.get(part, PastRounds())
            past = PastRounds(seen=seen, in_vain=0 if better else before.in_vain + 1)
            return heads.model_copy(update={"rounds": {**heads.rounds, part: past}})

        return self._change(ended)

    def _rolled_back(self, heads: HeadsInForce, part: HeadPart) -> HeadsInForce:
        number = heads.number(part)
        if part in heads.canaries:
            return _with(heads, part, number)
        if number == 0:
            raise ValueError(f"{part}: the bundle's own head is active, and there is no canary")
        parent = 0
        with suppress(UnknownVersionError):
            wanted = self._read(number).parent
            parent = self._read(wanted).number if wanted else 0
        return _with(heads, part, parent)

    def _change(
        self, update: Callable[[HeadsInForce], HeadsInForce], seen: HeadsInForce | None = None
    ) -> HeadsInForce:
        """Replace what is active by `update` of it. Another process's change is never lost."""
        self._fs.makedirs(self._root, exist_ok=True)
        while True:
            revisions = self._numbers(_REVISION)
            revision = (revisions[-1] if revisions else 0) + 1
            heads = self.in_force()
            if seen is not None and seen != heads:
                return heads
            changed = update(heads).model_copy(update={"revision": revision})
            body = changed.model_dump_json().encode()
            try:
                create_file(self._fs, self._revision_path(revision), body)
            except FileExistsError:
                continue
            remove_files(self._fs, map(self._revision_path, revisions[:-KEPT]))
            return changed

    def _claimed_number(self) -> int:
        """Return a number that no other process uses."""
        while True:
            number = max(self._numbers(_VERSION), default=0) + 1
            self._fs.makedirs(self._path(number), exist_ok=True)
            with suppress(FileExistsError):
                create_file(self._fs, f"{self._path(number)}/{CLAIM}", b"{}")
                return number

    def _read(self, number: int) -> HeadVersion:
        path = f"{self._path(number)}/{MANIFEST}"
        try:
            return HeadVersion.model_validate_json(self._fs.cat_file(path))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UnknownVersionError(f"there is no version {number}") from error
        except ValueError as error:
            logger.error("%s is unreadable: %s", path, error)
            raise UnknownVersionError(f"the manifest of version {number} is unreadable") from error

    def _download(self, number: int, local: Path) -> None:
        self._cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._cache, prefix="part-") as scratch:
            whole = Path(scratch, "head")
            whole.mkdir()
            for path in listed(self._fs, self._path(number)):
                self._fs.get_file(path, str(whole / path.rpartition("/")[2]))
            with suppress(OSError):  # another process of this machine was faster
                whole.rename(local)
        kept = {_name(number) for number in {number, *self._serving()}}
        for old in self._cache.glob("head-*"):
            if old.name[: len(_name(0))] not in kept:
                shutil.rmtree(old, ignore_errors=True)

    def _delete_old_versions(self) -> None:
        kept = [version.number for version in self.all()][:KEPT]
        # A number without a manifest may be one that another process writes now.
        for number in self._numbers(_VERSION) if len(kept) == KEPT else ():
            if number < kept[-1] and number not in self._serving():
                # The manifest first: without it the version does not exist.
                remove_files(self._fs, [f"{self._path(number)}/{MANIFEST}"])
                with suppress(FileNotFoundError):
                    self._fs.rm(self._path(number), recursive=True)

    def _serving(self) -> set[int]:
        heads = self.in_force()
        return {*heads.numbers.values(), *(one.number for one in heads.canaries.values())}

    def _numbers(self, pattern: re.Pattern[str]) -> list[int]:
        """Return the numbers of versions or revisions that are there, in ascending order."""
        return sorted(int(m[1]) for m in map(pattern.search, listed(self._fs, self._root)) if m)

    def _path(self, number: int) -> str:
        return f"{self._root}/{_name(number)}"

    def _revision_path(self, revision: int) -> str:
        return f"{self._root}/in-force-{revision:08d}.json"


def _name(number: int) -> str:
    return f"head-{number:06d}"


def _with(
    heads: HeadsInForce, part: HeadPart, number: int, canary: Canary | None = None
) -> HeadsInForce:
    numbers = {**heads.numbers, part: number}
    canaries = {name: one for name, one in heads.canaries.items() if name != part}
    if canary is not None:
        canaries[part] = canary
    return heads.model_copy(update={"numbers": numbers, "canaries": canaries})
