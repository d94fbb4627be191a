"""A world: a YAML file that says what the routing table believes, what is so, and what happens."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ops.common.boundary import InputError, describe
from schemas.base import Settings
from schemas.yaml_files import read_document, read_yaml

BASE_FILE = Path(__file__).parent / "base.yaml"

ALL, PREFERRED, PLAIN = "all", "preferred", "naive"
"""Names in factors that stand for every method, for the best one by the base, and for the method
that emits one token a step, whatever a world says."""


def _one_of(choices: Callable[["Base"], Collection[Any]]) -> AfterValidator:
    """Check that the base, if it is given as context, has what is named."""

    def check(name: Any, info: ValidationInfo) -> Any:
        known = choices(info.context) if info.context is not None else (name,)
        if name not in known:
            raise ValueError(f"{name} is not in the base; choose from {', '.join(map(str, known))}")
        return name

    return AfterValidator(check)


Above0 = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Cluster = Annotated[int, _one_of(lambda base: range(len(base.clusters.weights)))]
Method = Annotated[str, _one_of(lambda base: base.methods)]
Count = Annotated[int, Field(ge=1)]


class Factor(Settings):
    """Factors on the base's numbers of a method.

    clusters: where `acceptance` applies; None: everywhere.
    """

    method: Annotated[str, _one_of(lambda base: (*base.methods, PREFERRED, ALL))]
    step: Above0 = 1.0
    acceptance: Above0 = 1.0
    prefill: Above0 = 1.0
    clusters: tuple[Cluster, ...] | None = None


class Believed(Factor):
    """What the routing table says of a method. only_greedy: no counts above temperature 0."""

    only_greedy: bool = False


class Truth(Factor):
    """What is so of a method.

    best_by: its step is scaled so that the mean request takes as long as with the best other
    method, divided by this. fails: share of its responses that fail half way. hangs: its responses
    stop half way and never end.
    """

    best_by: Above0 | None = None
    fails: Share = 0.0
    hangs: bool = False


class Event(Settings):
    """What happens when the request with the number `at` is sent.

    truth: replaces earlier factors of the same methods. pause_seconds: the machine stands still
    for so long while that request and all others run.
    """

    at: int = Field(ge=0)
    truth: tuple[Truth, ...] = ()
    pause_seconds: float = Field(default=0.0, ge=0.0)


class Others(Settings):
    """Another tenant, which pins a method on `share` of a cluster's requests.

    acceptance: tokens per step of its responses.
    """

    share: Share
    cluster: Cluster
    method: Method
    acceptance: float = Field(ge=1.0)


class Clients(Settings):
    """What all requests are like, and when their clients give up."""

    stream: bool = True
    leave_after_seconds: Above0 | None = None
    max_tokens: Count = 128
    prompt_tokens: Count = 120
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    grammar: bool = False


class Arrivals(Settings):
    """A closed loop of so many clients, or `rate` requests a second by a Poisson process."""

    concurrency: Count = 1
    rate: Above0 | None = None


class World(Settings):
    """A world over its base.

    believed: None is a table without numbers. layout: replicas host one method each, or all.
    """

    base: Path = BASE_FILE
    believed: Annotated[
        tuple[Believed, ...] | None,
        BeforeValidator(lambda given: None if given == "none" else given or ()),
    ] = ()
    truth: tuple[Truth, ...] = ()
    events: tuple[Event, ...] = ()
    others: Others | None = None
    clients: Clients = Clients()
    arrivals: Arrivals = Arrivals()
    ingresses: int = Field(default=1, ge=1, le=1000)
    replicas: int = Field(default=1, ge=1, le=1000)
    load_lag_seconds: float = Field(default=0.3, ge=0.0)
    layout: Literal["per_method", "shared"] = "per_method"

    @model_validator(mode="after")
    def _possible(self) -> Self:
        every = (*self.truth, *(one for event in self.events for one in event.truth))
        if any(one.hangs for one in every) and self.clients.leave_after_seconds is None:
            raise ValueError("hangs: answers never end; set clients.leave_after_seconds as well")
        if any(one.best_by and one.method == ALL for one in every):
            raise ValueError("best_by: all methods cannot be the best; name one")
        if {"concurrency", "rate"} <= self.arrivals.model_fields_set:
            raise ValueError("arrivals: give either concurrency or rate, not both")
        return self


class Clusters(Settings):
    """The clusters' shares of the requests; they need not sum to 1."""

    weights: tuple[Above0, ...] = Field(min_length=1)


class Acceptance(Settings):
    """Tokens per target step by method and cluster, at temperature 0 and high ones."""

    greedy: dict[str, tuple[Above0, ...]]
    high: dict[str, tuple[Above0, ...]]


Line = Annotated[dict[int, Above0], Field(min_length=1)]


class Base(Settings):
    """Measured numbers: seconds per step by method and requests at once, seconds of a prefill by
    method and prompt tokens, mean output tokens by cluster."""

    methods: tuple[str, ...] = Field(min_length=1)
    clusters: Clusters
    acceptance: Acceptance
    step_seconds: dict[str, Line]
    prefill_seconds: dict[str, Line]
    output_tokens: tuple[Above0, ...]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        k, accepted = len(self.clusters.weights), self.acceptance
        tables: list[Any] = [accepted.greedy, accepted.high]
        for name in self.methods:
            if any(name not in each for each in (*tables, self.step_seconds, self.prefill_seconds)):
                raise ValueError(f"a table lacks {name}; add it")
        rows = [self.output_tokens, *accepted.greedy.values(), *accepted.high.values()]
        if any(len(row) != k for row in rows):
            raise ValueError(f"acceptance, output_tokens: give {k} numbers, one for each cluster")
        return self


def read_world(file: Path | None, base: Base | None = None) -> tuple[World, Base]:
    """Read a world and its base, which `base` replaces. Raises InputError and FileError.

    Without a file, it is the world in which the table is right.
    """
    values = read_document(file) if file and read_yaml(file) else {}
    place = file or BASE_FILE
    try:
        if base is None:
            place = place.parent / World.model_validate(values).base
            base = Base.model_validate(read_document(place))
        place = file or BASE_FILE
        return World.model_validate(values, context=base), base
    except ValidationError as error:
        raise InputError(f"{place}: {describe(error)}") from error
