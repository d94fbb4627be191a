"""The outcome of past training rounds, stored next to the head versions."""

import logging
from collections.abc import Iterable

from pydantic import Field, TypeAdapter

from deployments.drafters.versions import VersionStore
from deployments.learning.file_system import file_system, replace_file
from schemas import HeadPart
from schemas.base import Schema

logger = logging.getLogger(__name__)

FILE = "rounds.json"


class Past(Schema):
    """The rounds of one part."""

    seen: float = Field(default=0.0, description="time of the newest sample of the last round")
    in_vain: int = Field(default=0, ge=0, description="rounds in a row without a better head")
    starts: int = Field(
        default=0, ge=0, description="starts of the process of the round that is under way"
    )


_FILE = TypeAdapter(dict[HeadPart, Past])


class PastRounds:
    """Keep the outcome of each part's rounds across restarts, also on another node.

    Methods raise whatever the file system raises.
    """

    def __init__(self, versions: VersionStore) -> None:
        self._versions = versions
        self._fs, self._folder = file_system(versions.uri)
        self._past: dict[HeadPart, Past] | None = None

    def of(self, part: HeadPart) -> Past:
        """Return what is known of a part's rounds."""
        return self._known().get(part, Past())

    def began(self, part: HeadPart) -> None:
        """Count a start, before it: the process may use up the memory of the machine."""
        past = self.of(part)
        self._save(part, past.model_copy(update={"starts": past.starts + 1}))

    def dropped(self, part: HeadPart) -> None:
        """Reset the count of starts of a round that was dropped."""
        past = self.of(part)
        if past.starts:
            self._save(part, past.model_copy(update={"starts": 0}))

    def ended(self, part: HeadPart, seen: float, better: bool) -> None:
        """Record the end of a round that gave a better head, or none."""
        self._save(part, Past(seen=seen, in_vain=0 if better else self.of(part).in_vain + 1))

    def _known(self) -> dict[HeadPart, Past]:
        if self._past is None:
            path = f"{self._folder}/{FILE}"
            try:
                self._past = _FILE.validate_json(self._fs.cat_file(path))
            except (FileNotFoundError, NotADirectoryError):
                self._past = self._of_versions()
            except ValueError as error:
                logger.error("%s is unreadable (%s): rounds are counted anew", path, error)
                self._past = self._of_versions()
        return self._past

    def _of_versions(self) -> dict[HeadPart, Past]:
        """Return what the versions say of the rounds that gave them."""
        spans: Iterable[tuple[HeadPart, float]]
        spans = ((version.part, version.samples.last) for version in self._versions.all())
        return {part: Past(seen=last) for part, last in sorted(spans, key=lambda span: span[1])}

    def _save(self, part: HeadPart, past: Past) -> None:
        known = {**self._known(), part: past}
        self._fs.makedirs(self._folder, exist_ok=True)
        replace_file(self._fs, f"{self._folder}/{FILE}", _FILE.dump_json(known))
        self._past = known
