"""The drafter of each method of a shared engine, as its processes are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from schemas.config import DatastoreConfig
from workers.drafting.acceptance import USUAL
from workers.drafting.lookup.past import PAST_BYTES


@dataclass(frozen=True)
class Learned:
    """A method whose drafter may draft, its most tokens, and the share of every level that is
    usually accepted (see Acceptance)."""

    method: str
    drafter: str
    tokens: int
    usual: tuple[float, float] = (USUAL, USUAL)


@dataclass(frozen=True)
class Options:
    """The drafter settings of a MethodSpec; see LookUps and PastAnswers. stored: the arguments of
    the engine's Datastore."""

    learned: tuple[Learned, ...]
    least: float = 0.02
    past_bytes: int = PAST_BYTES
    stored: tuple[DatastoreConfig, str] | None = None


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

    def rows(self, methods: Sequence[str | None]) -> dict[str, list[int]]:
        """Return each drafter's rows of the batch, ascending. methods: one entry per row; None
        and methods that draft nothing are left out."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(methods):
            if name is not None and name in self.methods:
                rows.setdefault(self.methods[name].drafter, []).append(row)
        return rows


PORTFOLIO = TypeAdapter(Portfolio)
"""Reads a portfolio from vLLM's additional_config, where it is plain values."""
