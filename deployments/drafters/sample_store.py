"""Samples in a folder given by an fsspec URI."""

import gzip
import logging
import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress

from fsspec.implementations.local import LocalFileSystem

from deployments.learning.file_system import file_system, replace_file
from schemas import Sample
from schemas.base import Schema

logger = logging.getLogger(__name__)

_FILE = re.compile(r"samples-\w+\.jsonl\.gz$")
_ERASURE = re.compile(r"erased-\w+\.json$")


class Erasure(Schema):
    """A mark that an owner's samples up to a time, in seconds since the epoch, are erased."""

    owner: str
    until: float


class SampleStore:
    """Read and write files of samples and marks of erasure under `uri`.

    A file holds samples as gzipped JSON lines and appears whole or not at all. Several processes
    may write at once, since each file has a name of its own. Methods raise whatever the file system
    raises. Not safe for concurrent calls.
    """

    def __init__(self, uri: str) -> None:
        self._fs, self._folder = file_system(uri)
        self._known: set[str] = set()
        self._replaced: set[str] = set()

    @property
    def files(self) -> int:
        """Return the number of files read or written, as far as they have not been replaced."""
        return len(self._known)

    def read_new(self) -> list[Sample]:
        """Return the samples of files that this object has neither read nor written.

        Damaged files and lines are logged and skipped.
        """
        found: list[Sample] = []
        for path in self._paths():
            if _FILE.search(path) and path not in self._known:
                with suppress(FileNotFoundError):  # another process has replaced it
                    found += _decoded(self._fs.cat_file(path), path)
                    self._known.add(path)
        return found

    def append(self, samples: Iterable[Sample]) -> None:
        """Write samples to a new file."""
        self._make_folder()
        path = f"{self._folder}/samples-{uuid.uuid4().hex}.jsonl.gz"
        lines = "\n".join(sample.model_dump_json() for sample in samples)
        replace_file(self._fs, path, gzip.compress(lines.encode(), compresslevel=1))
        self._known.add(path)

    def rewrite(self, samples: Sequence[Sample]) -> None:
        """Replace all known files by one with these samples, or by none.

        What a killed process left half-written is removed too. Where files that another call has
        replaced cannot be removed, nothing is written: copies would fill the store.
        """
        self._remove_replaced()
        old = set(self._known)
        self._remove(path for path in self._paths() if path.endswith(".tmp"))
        if samples:
            self.append(samples)
        self._replaced = old
        self._remove_replaced()

    def _remove_replaced(self) -> None:
        self._remove(self._replaced)
        self._known -= self._replaced
        self._replaced = set()

    def mark_erased(self, erasure: Erasure) -> None:
        """Tell every process that writes here that an owner's samples are erased."""
        self._make_folder()
        path = f"{self._folder}/erased-{uuid.uuid4().hex}.json"
        replace_file(self._fs, path, erasure.model_dump_json().encode())

    def erasures(self, since: float) -> list[Erasure]:
        """Return the marks of erasure that reach beyond `since`, and remove the others."""
        found = []
        for path in filter(_ERASURE.search, self._paths()):
            try:
                erasure = Erasure.model_validate_json(self._fs.cat_file(path))
            except FileNotFoundError:  # another process has removed it
                continue
            except ValueError as error:
                logger.error("mark of erasure %s is unreadable: erase again: %s", path, error)
                continue
            if erasure.until >= since:
                found.append(erasure)
            else:
                self._remove([path])
        return found

    def _paths(self) -> list[str]:
        self._fs.invalidate_cache(self._folder)
        try:
            paths: list[str] = self._fs.ls(self._folder, detail=False)
        except FileNotFoundError:
            return []
        return paths

    def _make_folder(self) -> None:
        self._fs.makedirs(self._folder, exist_ok=True)
        if isinstance(self._fs, LocalFileSystem):
            # What users wrote is readable for the service's own user only.
            with suppress(PermissionError):
                self._fs.chmod(self._folder, 0o700)

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._fs.rm_file(path)


def _decoded(body: bytes, path: str) -> list[Sample]:
    try:
        lines = gzip.decompress(body).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        logger.error("samples %s are unreadable and will be removed: %s", path, error)
        return []
    found, problems = list[Sample](), list[ValueError]()
    for line in lines:
        try:
            found.append(Sample.model_validate_json(line))
        except ValueError as error:
            problems.append(error)
    if problems:
        logger.error(
            "%d of %d lines of samples %s are unreadable and will be removed, the first: %s",
            *(len(problems), len(lines), path, problems[0]),
        )
    return found
