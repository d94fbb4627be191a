"""The drafter of each method of a shared engine, as its processes are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from schemas.config import DatastoreConfig
from workers.drafting.acceptance import USUAL
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.past import PAST_BYTES
from workers.methods import METHOD_KEY


@dataclass(frozen=True)
class Learned:
    """A method whose drafter may draft, its most tokens, and the share of every level that is
    usually accepted (see Acceptance)."""

    method: str
    drafter: str
    tokens: int
    usual: tuple[float, float] = (USUAL, USUAL)


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


KEY = "specadapt"
"""Key of the portfolio in vLLM's additional_config."""
REQUESTS = "specadapt_requests"
"""Key of what `vllm serve` gives to requests: `default`, their method unless they name one, and
`salts`, the cache salt of each method."""
REQUEST, SCOPE = "specadapt_request", "specadapt_scope"
"""Keys of a request's `request_id`, with which vLLM's own id begins, and its `scope`."""
PREDICTED = "specadapt_predicted"
"""Key of its `predicted_token_ids`, if it has any."""


@dataclass(frozen=True)
class Drafting:
    """A method's drafter and its most draft tokens in a step."""

    drafter: str
    tokens: int


@dataclass(frozen=True)
class Portfolio:
    """The drafting methods by name, and each drafter's options in vLLM's terms.

    Methods that draft nothing are in neither. host: the drafter that vLLM is configured with,
    None where that is a class of ours. adaptive: options of the adaptive method, if there is
    one.
    """

    methods: Mapping[str, Drafting]
    drafters: Mapping[str, Mapping[str, Any]]
    host: str | None
    adaptive: Options | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Portfolio:
        """Return the portfolio that `to_config` wrote."""
        methods = {name: Drafting(**body) for name, body in config["methods"].items()}
        adaptive = config["adaptive"]
        return cls(
            methods,
            config["drafters"],
            config["host"],
            None if adaptive is None else Options.from_config(adaptive),
        )

    def to_config(self) -> dict[str, Any]:
        """Return the portfolio as plain values, as vLLM's additional_config takes them."""
        methods = {name: asdict(drafting) for name, drafting in self.methods.items()}
        drafters = {name: dict(options) for name, options in self.drafters.items()}
        adaptive = None if self.adaptive is None else self.adaptive.to_config()
        return {
            "methods": methods,
            "drafters": drafters,
            "host": self.host,
            "adaptive": adaptive,
        }

    def rows(self, methods: Sequence[str | None]) -> dict[str, list[int]]:
        """Return each drafter's rows of the batch, ascending. methods: one entry per row; None
        and methods that draft nothing are left out."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(methods):
            if name is not None and name in self.methods:
                rows.setdefault(self.methods[name].drafter, []).append(row)
        return rows


def method_named(extra: Mapping[str, Any] | None) -> str | None:
    """Return the method that a request's SamplingParams.extra_args name; vLLM's server lets them
    name anything."""
    name = (extra or {}).get(METHOD_KEY)
    return name if isinstance(name, str) else None
