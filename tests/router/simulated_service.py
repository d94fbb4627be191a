"""A simulated service in the made-up world: prompts come one by one, each alone on its replica.

Answers differ as real ones do: an answer's acceptance and step time lie around the method's.
No engine runs; seconds are computed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from routing_world import ACCEPTANCE, METHODS, STEP, decode_steps, observe

from router.constraints import Constraints
from router.exploration import Explorer
from router.learner import Learner
from router.policy import choose
from router.prompt import Features
from schemas import Decision, RouterConfig, RoutingTable

PREFILL = 0.02
ACCEPTANCE_NOISE = 0.35
STEP_NOISE = 0.1
FEATURES = Features(prompt_tokens=20, max_tokens=128)


@dataclass(frozen=True)
class World:
    """What the methods really do now. slower: by method, a factor on its step time. acceptance:
    by method and cluster, in place of the made-up world's."""

    slower: Mapping[str, float] = field(default_factory=dict)
    acceptance: Mapping[tuple[str, int], float] = field(default_factory=dict)


@dataclass
class Run:
    """What came of n requests. seconds [n, m]: what every method would have taken."""

    clusters: NDArray[np.int64]
    seconds: NDArray[np.float64]
    decisions: list[Decision] = field(default_factory=list)
    favourites: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def chosen(self) -> NDArray[np.str_]:
        return np.asarray([d.method for d in self.decisions])

    def taken(self) -> float:
        """Seconds of all answers."""
        columns = [METHODS.index(d.method) for d in self.decisions]
        return float(self.seconds[np.arange(len(columns)), columns].sum())

    def of(self, method_of_cluster: Mapping[int, str]) -> float:
        """Seconds of all answers, had each cluster been given this one method."""
        columns = [METHODS.index(method_of_cluster[int(k)]) for k in self.clusters]
        return float(self.seconds[np.arange(len(columns)), columns].sum())

    def moved(self, cluster: int, method: str, window: int = 20, share: float = 0.8) -> float:
        """After how many of this cluster's requests the method has this share of the next
        `window` of them; infinity where it never has."""
        is_method = self.chosen[self.clusters == cluster] == method
        shares = np.convolve(is_method, np.ones(window) / window, mode="valid")
        reached = np.flatnonzero(shares >= share)
        return float(reached[0]) if len(reached) else np.inf

    def changes(self) -> int:
        """How often a favourite changed."""
        return sum(a != b for a, b in zip(self.favourites, self.favourites[1:], strict=False))


class SimulatedService:
    """Chooses, answers, observes; its worlds follow one another."""

    def __init__(self, table: RoutingTable, config: RouterConfig, seed: int) -> None:
        self.learner = Learner(table)
        self._explorer = Explorer(np.random.default_rng((seed, 0)))
        self._config = config
        self._world = np.random.default_rng((seed, 1))
        self._requests, self._time = 0, 0.0

    def run(self, requests: int, world: World = World(), cluster: int | None = None) -> Run:
        """`cluster`: of all prompts; default: each prompt's is drawn."""
        clusters = self._world.integers(0, 2, requests)
        if cluster is not None:
            clusters[:] = cluster
        acceptance = np.asarray(
            [
                [world.acceptance.get((m, int(k)), ACCEPTANCE[m][k]) for m in METHODS]
                for k in clusters
            ]
        )
        deviations = ACCEPTANCE_NOISE * self._world.standard_normal(acceptance.shape)
        steps = np.vectorize(decode_steps)(acceptance, deviations)
        step = np.asarray([STEP[m] * world.slower.get(m, 1.0) for m in METHODS])
        decode = steps * step * np.exp(STEP_NOISE * self._world.standard_normal(steps.shape))
        run = Run(clusters, PREFILL + decode)
        for i, k in enumerate(clusters):
            decision = self._choose(int(k))
            m = METHODS.index(decision.method)
            self._observe(decision, int(steps[i, m]), float(decode[i, m]))
            run.decisions.append(decision)
            run.favourites.append(tuple(row[0] for row in self.learner.table.assignment))
        return run

    def _choose(self, cluster: int) -> Decision:
        table = self.learner.table
        limits = Constraints(healthy=frozenset(table.methods))
        features = replace(FEATURES, cluster=cluster)
        return choose(table, features, (), limits, self._config, self._explorer)

    def _observe(self, decision: Decision, steps: int, seconds: float) -> None:
        self._requests += 1
        measured = {
            "target_steps": steps + 1,
            "decode_seconds": seconds,
            "total_seconds": PREFILL + seconds,
        }
        table, identity = self.learner.table, str(self._requests)
        answer = observe(table, identity, decision.method, decision.cluster, **measured)
        self._time += 1.0 + PREFILL + seconds
        self.learner.observe([answer.model_copy(update={"time": self._time})])
