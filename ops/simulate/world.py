"""A world: a YAML file that says what the routing table believes, what is so, and what happens."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from ops.common.boundary import InputError, describe
from schemas.base import Settings
from schemas.yaml_files import read_document, read_yaml

Read = TypeVar("Read", "World", "Base")

BASE_FILE = Path(__file__).parent / "base.yaml"

ALL, PREFERRED = "all", "preferred"
"""Names in factors that stand for every method, and for the best one by the base."""

PLAIN = "naive"
"""The method that emits one token a step, whatever a world says."""


class Fields(Settings):
    """Fields of a YAML file. An unknown one is refused with the names of those that there are."""

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            raise ValueError(f"expected the fields {', '.join(cls.model_fields)}; got {values!r}")
        for name in values.keys() - cls.model_fields.keys():
            raise ValueError(f"unknown field {name!r}; choose from {', '.join(cls.model_fields)}")
        return {name: value for name, value in values.items() if value is not None}


Above0 = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Factor(Fields):
    """Factors on the base's numbers of a method. clusters: where `acceptance` applies; None:
    everywhere."""

    method: str
    step: Above0 = 1.0
    acceptance: Above0 = 1.0
    prefill: Above0 = 1.0
    clusters: tuple[int, ...] | None = None


class Believed(Factor):
    """What the routing table says of a method. only_greedy: no counts above temperature 0."""

    only_greedy: bool = False


class Truth(Factor):
    """What is so of a method.

    best_by: its step is scaled so that the mean request takes as long as with the best other
    method, divided by this. fails: share of its answers that fail half way. hangs: its answers stop
    half way and never end.
    """

    best_by: Above0 | None = None
    fails: Share = 0.0
    hangs: bool = False


class Event(Fields):
    """What happens when the request with the number `at` is sent.

    truth: replaces earlier factors of the same methods. pause_seconds: the machine stands still
    for so long while that request and all others run.
    """

    at: int = Field(ge=0)
    truth: tuple[Truth, ...] = ()
    pause_seconds: float = Field(default=0.0, ge=0.0)


class Others(Fields):
    """Another tenant: `share` of a cluster's requests pin a method that accepts `acceptance` tokens
    a step on them."""

    share: Share
    cluster: int
    method: str
    acceptance: float = Field(ge=1.0)


class Clients(Fields):
    """What all requests are like, and when their clients give up."""

    stream: bool = True
    leave_after_seconds: Above0 | None = None
    max_tokens: int = Field(default=128, ge=1)
    prompt_tokens: int = Field(default=120, ge=1)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    grammar: bool = False


class Arrivals(Fields):
    """A closed loop of so many clients, or `rate` requests a second by a Poisson process."""

    concurrency: int = Field(default=1, ge=1)
    rate: Above0 | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if {"concurrency", "rate"} <= self.model_fields_set:
            raise ValueError("give either concurrency or rate, not both")
        return self


def _listed(value: Any) -> Any:
    """Return `believed` as validated: None for a table without numbers."""
    if value == "none":
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f"expected a list of factors, or none for no table; got {value!r}")
    return value


class World(Fields):
    """A world over its base. layout: replicas host one method each, or all methods."""

    base: Path = BASE_FILE
    believed: Annotated[tuple[Believed, ...] | None, BeforeValidator(_listed)] = ()
    truth: tuple[Truth, ...] = ()
    events: tuple[Event, ...] = ()
    others: Others | None = None
    clients: Clients = Clients()
    arrivals: Arrivals = Arrivals()
    ingresses: int = Field(default=1, ge=1, le=1000)
    replicas: int = Field(default=1, ge=1, le=1000)
    load_lag_seconds: float = Field(default=0.3, ge=0.0)
    layout: Literal["per_method", "shared"] = "per_method"

    @property
    def every_truth(self) -> tuple[Truth, ...]:
        """Return the factors of the beginning and of all events."""
        return self.truth + tuple(one for event in self.events for one in event.truth)


class Clusters(Fields):
    """The clusters' shares of the requests; they need not sum to 1."""

    weights: tuple[Above0, ...] = Field(min_length=1)


class Acceptance(Fields):
    """Tokens per target step by method and cluster, at temperature 0 and high ones."""

    greedy: dict[str, tuple[Above0, ...]]
    high: dict[str, tuple[Above0, ...]]


Line = Annotated[dict[int, Above0], Field(min_length=1)]


class Base(Fields):
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
        k = len(self.clusters.weights)
        tables: dict[str, Any] = {
            "acceptance.greedy": self.acceptance.greedy,
            "acceptance.high": self.acceptance.high,
            "step_seconds": self.step_seconds,
            "prefill_seconds": self.prefill_seconds,
        }
        for name, table in tables.items():
            if missing := set(self.methods) - table.keys():
                raise ValueError(f"{name}: lacks {', '.join(sorted(missing))}; add them")
        rows = [
            self.output_tokens,
            *self.acceptance.greedy.values(),
            *self.acceptance.high.values(),
        ]
        if any(len(row) != k for row in rows):
            raise ValueError(f"acceptance, output_tokens: give {k} numbers, one for each cluster")
        return self


def read_world(file: Path | None) -> World:
    """Read a world; None is the world in which the table is right. Raises InputError."""
    if file is None:
        return World()
    documents = read_yaml(file)
    if len(documents) > 1:
        raise InputError(f"{file}: has {len(documents)} YAML documents; give a file with one")
    world = _validated(World, documents[0] if documents else {}, file)
    return world.model_copy(update={"base": file.parent / world.base})


def read_base(file: Path) -> Base:
    """Read the numbers of a base world. Raises InputError."""
    return _validated(Base, read_document(file), file)


def check(world: World, base: Base) -> None:
    """Raise InputError if a world names what its base does not have, or can never end."""
    k, special = len(base.clusters.weights), (PREFERRED, ALL)
    named: list[tuple[str, str, tuple[str, ...]]] = []
    clusters: list[tuple[str, int]] = []
    lists: dict[str, tuple[Factor, ...]] = {"believed": world.believed or (), "truth": world.truth}
    lists |= {f"events.{i}.truth": event.truth for i, event in enumerate(world.events)}
    for place, factors in lists.items():
        for i, one in enumerate(factors):
            named.append((f"{place}.{i}.method", one.method, special))
            clusters += [(f"{place}.{i}.clusters", cluster) for cluster in one.clusters or ()]
    if world.others is not None:
        named.append(("others.method", world.others.method, ()))
        clusters.append(("others.cluster", world.others.cluster))
    for place, name, also in named:
        if name not in (*base.methods, *also):
            choice = ", ".join((*base.methods, *also))
            raise InputError(f"{place}: {name} is not a method; choose from {choice}")
    for place, cluster in clusters:
        if not 0 <= cluster < k:
            raise InputError(f"{place}: {cluster} is not a cluster; choose from 0 to {k - 1}")
    hangs = any(one.hangs for one in world.every_truth)
    if hangs and world.clients.leave_after_seconds is None:
        raise InputError("hangs: answers never end; set clients.leave_after_seconds as well")


def _validated(kind: type[Read], values: Any, file: Path) -> Read:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{file}: {describe(error)}") from error
