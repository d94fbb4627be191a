"""An operator's own texts, in which requests look up (REST, arXiv 2311.08252).

`datastore.json` names one index file, so that a folder is replaced by replacing `datastore.json`.
The index file holds every place in the order of the tokens before it, as big-endian 32-bit
integers: first the places, then the texts from the last token to the first.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import re
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from schemas.base import Schema
from schemas.config import DatastoreConfig
from schemas.json_files import read_record
from schemas.text_files import FileError, open_file
from workers.bundle import Bundle
from workers.drafting.lookup.occurrences import LONGEST, Occurrence

log = logging.getLogger(__name__)

MANIFEST = "datastore.json"
MOST_TOKENS = 50_000_000
"""Most tokens of an index; its construction takes about 60 bytes of memory for each."""
SHORTEST = 3
"""Fewest tokens of a match: nearly every pair of tokens occurs in a large corpus."""
EXAMINED = 16
"""Places that a look-up compares: those nearest to the pattern in the index's order."""
AHEAD = 32
"""Most tokens that a look-up reads after a place."""
SEPARATOR = 2**32 - 1
"""Stands behind every text; it is no token."""
WIDTH, BITS = 4, 32
FIX = "build it again with `specadapt datastore build`"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class DatastoreError(ValueError):
    """A folder that holds no usable index; the message names the file and the fix."""


class Manifest(Schema):
    """The contents of an index. tokenizer, sha256: hashes of tokenizer.json and of the index
    file. tokens: of all texts, without separators."""

    version: Literal[1]
    tokenizer: Sha256
    file: str = Field(pattern=r"^[0-9a-f]{16}\.index$")
    sha256: Sha256
    texts: int = Field(ge=1)
    tokens: int = Field(ge=1, le=MOST_TOKENS)


class Corpus:
    """A memory-mapped index. The operating system keeps the parts in memory that are read, once
    for all processes."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._count = data, len(data) // (2 * WIDTH)
        self._first = self._count * WIDTH
        """The byte at which the tokens begin."""

    @classmethod
    def open(cls, folder: Path, tokenizer: str) -> Corpus:
        """Map the index in a folder. Raises DatastoreError if it is missing, corrupt, or made with
        another tokenizer."""
        manifest = read_manifest(folder, tokenizer)
        file = folder / manifest.file
        try:
            with open_file(file) as stream:
                data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            if read_manifest(folder, tokenizer) != manifest:  # it was replaced meanwhile
                return cls.open(folder, tokenizer)
            raise DatastoreError(f"{file}: cannot be read ({error}); {FIX}") from error
        if hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise DatastoreError(f"{file}: not as it was built; {FIX}")
        return cls(data)

    def find(self, pattern: Sequence[int]) -> list[Occurrence]:
        """Return places whose tokens before them are the pattern's last ones, at least SHORTEST:
        those with the most. An occurrence's text begins at its place."""
        wanted = _bytes(pattern[: -LONGEST - 1 : -1])
        at = bisect_left(range(self._count), wanted, key=self._before)
        found = list[Occurrence]()
        for ranks in (range(at - 1, -1, -1), range(at, self._count)):
            for rank in ranks[: EXAMINED // 2]:
                matched = _common(wanted, self._before(rank))
                if matched < SHORTEST:
                    break
                found.append(Occurrence(self._after(rank), 0, matched))
        return found

    def _before(self, rank: int) -> bytes:
        """Return the tokens before a place, the nearest first."""
        start = self._place(rank)
        return self._data[start : start + LONGEST * WIDTH]

    def _after(self, rank: int) -> tuple[int, ...]:
        """Return the tokens after a place, up to the end of its text."""
        stop = self._place(rank)
        data = self._data[max(self._first, stop - AHEAD * WIDTH) : stop]
        tokens = struct.unpack(f">{len(data) // WIDTH}I", data)[::-1]
        return tokens[: tokens.index(SEPARATOR)] if SEPARATOR in tokens else tokens

    def _place(self, rank: int) -> int:
        at = rank * WIDTH
        return self._first + WIDTH * int.from_bytes(self._data[at : at + WIDTH])


def read_manifest(folder: Path, tokenizer: str) -> Manifest:
    """Read an index's manifest. Raises DatastoreError if it is missing, malformed, or of another
    tokenizer."""
    file = folder / MANIFEST
    try:
        manifest = read_record(file, Manifest)
    except FileError as error:
        raise DatastoreError(f"{error}; {FIX}") from error
    if manifest.tokenizer != tokenizer:
        raise DatastoreError(f"{file}: made with another tokenizer than the bundle's; {FIX}")
    return manifest


def write_corpus(folder: Path, texts: Iterable[Sequence[int]], tokenizer: str) -> Manifest:
    """Write the index of some texts to a folder, in place of the index that is there.

    tokenizer: hash of its tokenizer.json. Raises DatastoreError for no tokens, for more than
    MOST_TOKENS, and for a folder with other contents.
    """
    if folder.exists() and not (folder / MANIFEST).is_file() and any(folder.iterdir()):
        raise DatastoreError(f"{folder} holds other files; name a new or an empty folder")
    parts, count = list[NDArray[np.uint32]](), 0
    for text in texts:
        parts.append(np.array([*text, SEPARATOR], np.uint32))
        count += len(text)
        if count > MOST_TOKENS:
            raise DatastoreError(f"more than {MOST_TOKENS:,} tokens; leave out files")
    if not count:
        raise DatastoreError("the files hold no text; name others")
    tokens = np.concatenate(parts)[::-1]
    data = b"".join([part.astype(">u4").tobytes() for part in (_order(tokens), tokens)])
    digest = hashlib.sha256(data).hexdigest()
    manifest = Manifest(
        version=1,
        tokenizer=tokenizer,
        file=f"{digest[:16]}.index",
        sha256=digest,
        texts=len(parts),
        tokens=count,
    )
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / manifest.file, data)
    _replace(folder / MANIFEST, (manifest.model_dump_json(indent=2) + "\n").encode())
    for file in folder.glob("*.index"):  # engines that map an older one keep it until they look
        if file.name != manifest.file:
            file.unlink()
    return manifest


def _replace(file: Path, data: bytes) -> None:
    scratch = file.with_name(f".{file.name}.new")
    scratch.write_bytes(data)
    scratch.replace(file)


def _order(tokens: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return all places in the order of the LONGEST tokens from them on, by prefix doubling
    (Manber and Myers 1993)."""
    ranks = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1
    order, length = np.argsort(ranks), 1
    while length < LONGEST and ranks[order[-1]] < len(tokens):
        after = np.zeros_like(ranks)  # 0: beyond the end
        after[:-length] = ranks[length:]
        keys = ranks * (len(tokens) + 1) + after
        order = np.argsort(keys)
        keys = keys[order]
        ranks[order] = np.concatenate(([1], 1 + np.cumsum(keys[1:] != keys[:-1])))
        length *= 2
    return order


def _bytes(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, ">u4").tobytes()


def _common(one: bytes, other: bytes) -> int:
    """Return how many tokens two sequences have in common at their beginning."""
    shorter = min(len(one), len(other))
    differ = int.from_bytes(one[:shorter]) ^ int.from_bytes(other[:shorter])
    return shorter // WIDTH - -(-differ.bit_length() // BITS)


CHECK_SECONDS = 5.0
"""Interval at which a decoding engine looks for another index in the folder."""
RETRY_SECONDS = 60.0
"""Time after which it tries again to open one that could not be used."""


class Datastore:
    """Look up in the index of a folder, and in the one that replaces it.

    tokenizer: hash of the bundle's tokenizer.json. Raises DatastoreError as `Corpus.open`. A
    replacement that cannot be used is logged and tried again every RETRY_SECONDS; until then the
    index in use stays.
    """

    def __init__(
        self,
        config: DatastoreConfig,
        tokenizer: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._tokenizer, self._clock = config.folder, tokenizer, clock
        scopes = None if config.scopes is None else "|".join(map(re.escape, config.scopes))
        # a request's own scope within its owner's is a hash
        self._scopes = None if scopes is None else re.compile(rf"(?:{scopes})(?: [0-9a-f]{{64}})?")
        self._seen, self._due = self._version(), clock() + CHECK_SECONDS
        self._corpus = Corpus.open(self._folder, tokenizer)
        self._loading: threading.Thread | None = None

    def find(self, scope: str, pattern: Sequence[int]) -> list[Occurrence]:
        """Return where the texts have the pattern's last tokens, if the scope may look up."""
        if self._scopes is not None and not self._scopes.fullmatch(scope):
            return []
        return self._corpus.find(pattern)

    def follow(self) -> threading.Thread | None:
        """Load another index if the folder has one, in a thread, which is returned. Looks at most
        every CHECK_SECONDS."""
        if self._clock() < self._due or (self._loading and self._loading.is_alive()):
            return None
        self._due, version = self._clock() + CHECK_SECONDS, self._version()
        if version in (None, self._seen):
            return None
        self._seen = version
        self._loading = threading.Thread(target=self._load, name="datastore", daemon=True)
        self._loading.start()
        return self._loading

    def _load(self) -> None:
        try:
            self._corpus = Corpus.open(self._folder, self._tokenizer)
            log.info("datastore: %s was replaced", self._folder)
        except DatastoreError as error:
            self._seen, self._due = None, self._clock() + RETRY_SECONDS
            log.error("datastore: the index in use stays: %s", error)

    def _version(self) -> tuple[int, int] | None:
        try:
            found = (self._folder / MANIFEST).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


def open_datastore(config: DatastoreConfig | None, bundle: Bundle) -> Datastore | None:
    """Open the datastore of a configuration. Raises DatastoreError naming the field."""
    if config is None:
        return None
    try:
        return Datastore(config, bundle.tokenizer_hash)
    except DatastoreError as error:
        raise DatastoreError(f"engine.datastore.folder: {error}") from error
