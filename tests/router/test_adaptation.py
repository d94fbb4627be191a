"""A simulated service whose prompts change: alarm, new fit, and the new cluster's own method."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from prompt_kinds import DIMENSION, Kinds
from routing_world import METHODS, make_profile, observe

from router import cluster, drift
from router.adaptation import Adaptation
from router.constraints import Constraints
from router.drift import Reference
from router.fit.assign import build_table
from router.policy import choose
from router.prompt import Features
from router.trials import Trials
from schemas import EncoderInfo, RouterConfig

KNOWN, NEW = [0, 1], 2
FEATURES = Features(prompt_tokens=20, max_tokens=128)
CONFIG = RouterConfig(exploration=0.05)


@pytest.fixture(autouse=True)
def shorter_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "WINDOW", 100)


class Service:
    """Two kinds of prompts, the first answered best by `draft`; prompts of the new kind lie
    nearest to the first, and n-gram answers them in less than half the time."""

    def __init__(self, seed: int) -> None:
        self.kinds = Kinds(3, seed)
        towards = self.kinds.centres[NEW] + 0.5 * self.kinds.centres[0]
        self.kinds.centres[NEW] = towards / np.linalg.norm(towards)
        vectors = self.kinds.mixed(800, KNOWN)
        centroids = np.stack([vectors @ self.kinds.centres[k] > 0.3 for k in KNOWN]).astype(float)
        centroids = centroids @ vectors / centroids.sum(axis=1, keepdims=True)
        labels = cluster.assign(centroids, vectors)
        encoder = EncoderInfo(name="made-up", dimension=DIMENSION, sha256="0" * 64)
        profile, _ = make_profile(per_cluster=50)
        profiled = self.kinds.prompts(np.arange(100) % 2)
        table = build_table(profile, profiled, centroids, encoder)
        distances = Reference.of_fit(centroids, vectors, labels).state()
        table = table.model_copy(update={"provenance": {"distances": distances}})
        self.adaptation = Adaptation(table)
        self._trials = Trials(np.random.default_rng(seed))
        self._numbers = itertools.count()

    def serve(self, kinds: list[int]) -> list[str]:
        """The methods that answer prompts of these kinds; refits happen at once."""
        return [self._answer(kind) for kind in kinds]

    def _answer(self, kind: int) -> str:
        table = self.adaptation.table
        [vector] = self.kinds.prompts(np.asarray([kind]))
        [label] = cluster.assign(table.centroids, vector[None, :])
        limits = Constraints(healthy=frozenset(METHODS))
        features = replace(FEATURES, cluster=int(label))
        decision = choose(table, features, (), limits, CONFIG, self._trials)
        answer = observe(table, str(next(self._numbers)), decision.method, min(kind, 1))
        routed = {"cluster": int(label), "vector": cluster.packed(vector)}
        observation = answer.model_copy(update=routed)
        if self.adaptation.observe([observation]):
            made = self.adaptation.refitting()()
            if made is not None:
                self.adaptation = self.adaptation.adopting(made)
        return decision.method


def test_a_new_kind_of_prompt_is_soon_answered_by_its_own_method() -> None:
    """Within 100 prompts of it there is a new fit, within 200 more its favourite is n-gram, and
    the old kinds keep their methods."""
    service = Service(seed=0)
    assert service.serve([0, 1] * 75)[50::2].count("draft") > 40
    assert service.adaptation.report().refits == 0
    service.serve([0, NEW] * 100)
    assert service.adaptation.report().refits == 1
    service.serve([0, NEW] * 200)
    favourites = [row[0] for row in service.adaptation.table.assignment]
    assert favourites == ["draft", "ngram", "ngram"]
    last = service.serve([0, NEW] * 30)
    assert last[0::2].count("draft") > 20
    assert last[1::2].count("ngram") > 20
    assert service.adaptation.report().refits == 1
