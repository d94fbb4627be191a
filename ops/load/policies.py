"""Routing policies: which methods are asked first, second and so on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from router.constraints import Constraints
from router.policy import choose
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from router.trials import Trials
from schemas import Decision, RouterConfig, RoutingTable

ROUTED = "routed"
STATIC = "static_table"
RANDOM = "random"
ONLY = "only_"
"""Prefix of the policies that put one method on all replicas."""


@dataclass(frozen=True)
class Question:
    """A recorded prompt as the router sees it; `text` is the user's turn."""

    token_ids: tuple[int, ...]
    cluster: int
    features: Features
    text: str

    def after(self, told: tuple[int, ...]) -> "Question":
        """Return the question as the next turn of a conversation of these tokens."""
        features = self.features
        features = replace(features, prompt_tokens=len(told) + features.prompt_tokens)
        return replace(self, token_ids=told + self.token_ids, features=features)


UNLOADED = ReplicaLoads(())
"""The loads where nothing is known of them."""

Policy = Callable[[Question, ReplicaLoads], Sequence[str]]
"""The methods to try for a question under the present loads, the first choice first."""


class Routed:
    """The policy that serves, exploration included. Methods that no replica reports get nothing;
    without reports all are there."""

    def __init__(self, table: RoutingTable, config: RouterConfig, seed: int) -> None:
        self.table = table
        """In force; another one may take its place between two questions."""
        self.decision: Decision | None = None
        """The last one."""
        self.pinned: str | None = None
        """The method that questions ask for by name, if they do."""
        self.deadline_seconds: float | None = None
        """Of the next question."""
        self._config = config
        self.trials = Trials(np.random.default_rng((seed, 2)))

    def __call__(self, question: Question, loads: ReplicaLoads) -> Sequence[str]:
        if loads.table is not self.table:
            loads = ReplicaLoads(loads.reports, self.table)
        live = loads.live if loads.reports else self.table.methods
        constraints = Constraints(
            frozenset(live), pinned=self.pinned, deadline_seconds=self.deadline_seconds
        )
        features = replace(question.features, cluster=question.cluster)
        self.decision = decision = choose(
            self.table, features, loads, constraints, self._config, self.trials
        )
        return [decision.method, *(m for m in decision.ranked if m != decision.method)]


def static_table(table: RoutingTable, config: RouterConfig) -> Policy:
    """Each cluster's methods as they rank on an unloaded system, whatever the load."""
    calm = config.model_copy(update={"exploration": 0.0})
    unloaded = Routed(table, calm, seed=0)
    return lambda question, _: unloaded(question, UNLOADED)


def at_random(methods: Sequence[str], seed: int) -> Policy:
    """All methods alike, in an order drawn for each question."""
    rng = np.random.default_rng((seed, 3))
    return lambda _question, _loads: [methods[i] for i in rng.permutation(len(methods))]


def only(method: str) -> Policy:
    """Return the policy that always chooses one method."""
    return lambda _question, _loads: [method]
