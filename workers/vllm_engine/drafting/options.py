"""The options of a shared vLLM engine's adaptive method, as they are sent to its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schemas.config import DatastoreConfig
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.past import PAST_BYTES


@dataclass(frozen=True)
class Learned:
    """A method whose drafter may draft, and its most tokens."""

    method: str
    drafter: str
    tokens: int


@dataclass(frozen=True)
class Stored:
    """The fields of a DatastoreConfig, and the hash of the bundle's tokenizer."""

    config: Mapping[str, Any]
    tokenizer: str

    def open(self) -> Datastore:
        """Open the datastore. Raises DatastoreError."""
        return Datastore(DatastoreConfig.model_validate(self.config), self.tokenizer)


@dataclass(frozen=True)
class Options:
    """The drafter settings of a MethodSpec; see LookUps and PastAnswers. stored: the
    engine's datastore."""

    learned: tuple[Learned, ...]
    least: float = 0.02
    past_bytes: int = PAST_BYTES
    stored: Stored | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Options:
        """Return the options that `to_config` wrote."""
        stored = config["stored"] and Stored(**config["stored"])
        learned = tuple(Learned(**one) for one in config["learned"])
        return cls(**{**config, "learned": learned, "stored": stored})

    def to_config(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return asdict(self)
