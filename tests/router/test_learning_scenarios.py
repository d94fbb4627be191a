"""What learning is worth while things change: simulated, seeded, against choices that never learn.

A cluster's requests are counted; the numbers of the bounds are about twice what was seen.
"""

import numpy as np
import pytest
from routing_world import ACCEPTANCE, CENTROIDS, ENCODER, make_profile
from simulated_service import ACCEPTANCE_NOISE, STEP_NOISE, SimulatedService, World

from router.fit.assign import build_table
from schemas import RouterConfig, RoutingTable

CONFIG = RouterConfig()
OFFLINE = {0: "draft", 1: "ngram"}
"""The favourites of the made-up world: draft takes 0.40 s on the first cluster and n-gram 0.55 s,
n-gram 0.16 s on the second and draft 0.40 s; plain decoding 0.62 s on both."""

SEEDS = [0, pytest.param(1, marks=pytest.mark.slow)]


@pytest.mark.parametrize("share", [0.01, 0.03])
@pytest.mark.slow
def test_twenty_services_in_which_nothing_changes_lose_their_share_at_most(offline, share):
    config = RouterConfig(exploration=share)
    runs = [SimulatedService(offline, config, seed).run(150) for seed in range(20)]
    lost = [run.taken() / run.of(OFFLINE) - 1.0 for run in runs]
    assert np.mean(lost) <= share
    tried = np.mean([d.reason == "exploration" for run in runs for d in run.decisions])
    assert tried > 0.5 * share
    assert not any(d.reason == "load" for run in runs for d in run.decisions)


@pytest.mark.parametrize("seed", SEEDS)
def test_prompts_leave_a_method_that_got_twice_as_slow_and_return(offline, seed):
    service = SimulatedService(offline, CONFIG, seed)
    service.run(300)
    slow = service.run(400, World(slower={"draft": 2.0}))
    assert slow.moved(0, "ngram") <= 80
    assert slow.favourites[120][0] == "ngram"
    assert slow.changes() <= 2
    assert slow.taken() <= 1.10 * slow.of({0: "ngram", 1: "ngram"})
    assert slow.taken() <= 0.90 * slow.of(OFFLINE)

    recovered = service.run(900)
    # An audit tells that it has recovered. They come by chance.
    audited = [decision.method for decision in recovered.decisions].index("draft")
    before = (recovered.clusters[:audited] == 0).sum()
    assert recovered.moved(0, "draft") <= before + 60
    assert recovered.favourites[-1] == tuple(OFFLINE.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_whose_acceptance_changes_changes_alone(offline: RoutingTable, seed: int) -> None:
    """Its prompts are no longer what n-gram can copy."""
    service = SimulatedService(offline, CONFIG, seed)
    service.run(300)
    changed = service.run(500, World(acceptance={("ngram", 1): 1.2}))
    assert changed.moved(1, "draft") <= 150
    assert changed.favourites[-1] == ("draft", "draft")
    assert changed.taken() <= 1.15 * changed.of({0: "draft", 1: "draft"})
    first = changed.clusters == 0
    assert np.mean(changed.chosen[first] == "draft") > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_favourites_of_near_equals_do_not_flap(seed: int) -> None:
    """Two methods within a tenth of each other on one cluster, under noise: the favourite changes
    at most twice in 800 requests, and less than 2% is lost."""
    world = World(acceptance={("draft", 0): 1.9, ("ngram", 0): 1.25})
    profile = make_profile(per_cluster=30, noise=STEP_NOISE, spread=ACCEPTANCE_NOISE)
    table = build_table(*profile, CENTROIDS, ENCODER)
    service = SimulatedService(table, CONFIG, seed)
    service.run(200, world)
    run = service.run(600, world)
    assert run.changes() <= 2
    best = min(run.of({0: m, 1: "ngram"}) for m in ("draft", "ngram"))
    assert run.taken() <= 1.02 * best


def test_a_wrong_profile_stays_refuted_while_nothing_is_tried(monkeypatch):
    """N-gram is profiled as good on the first cluster too. Its prompts returned to it every 200
    requests, whenever the live answers that refute the profile had faded."""
    with monkeypatch.context() as profiled:
        profiled.setitem(ACCEPTANCE, "ngram", (5.0, 5.0))
        profile = make_profile(per_cluster=30, noise=STEP_NOISE, spread=ACCEPTANCE_NOISE)
    wrong = build_table(*profile, CENTROIDS, ENCODER)
    assert wrong.assignment[0][0] == "ngram"
    service = SimulatedService(wrong, RouterConfig(exploration=0.0), 0)
    service.run(100, cluster=0)
    run = service.run(600, cluster=0)
    assert run.changes() == 0
    assert set(run.chosen) == {"draft"}
