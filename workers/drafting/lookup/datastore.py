"""An operator's own texts, in which requests look up (REST, arXiv 2311.08252)."""

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence

from schemas.config import DatastoreConfig
from workers.bundle import Bundle
from workers.drafting.lookup.corpus import MANIFEST, Corpus, DatastoreError
from workers.drafting.lookup.occurrences import Occurrence

log = logging.getLogger(__name__)

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
