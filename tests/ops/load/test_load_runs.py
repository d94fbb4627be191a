"""The simulated replicas of `bench load`, on the tiny profile that these tests measure."""

import numpy as np
import pytest

from ops.load.capacity import capacity
from ops.load.policies import UNLOADED, Question, Routed, at_random, only, static_table
from ops.load.runs import Load, Site, layout_of, simulate
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from router.table import load_table
from schemas import EngineConfig, LoadReport, RouterConfig
from workers.replay_engine.recording import Recording

pytestmark = pytest.mark.usefixtures("fitted")


@pytest.fixture(scope="module")
def site(world):
    """Two replicas of naive, with room for two sequences each."""
    folder, _, bundle = world
    engine = EngineConfig(max_batch=2, max_context=256)
    recording = Recording.load(folder / "held")
    return Site(recording, bundle.backend_tokenizer(), engine, (("naive",), ("naive",)))


@pytest.fixture(scope="module")
def questions(site):
    return [
        Question(ids, 0, Features(len(ids), 10, temperature), "")
        for method, temperature, ids in site.recording.answers
        if method == "naive"
    ]


def test_the_replica_with_the_fewest_outstanding_tokens_is_asked(site, questions):
    pair = questions[:2]
    [alone] = simulate(site, only("naive"), Load(pair[1:], np.zeros(1)))
    _, second = simulate(site, only("naive"), Load(pair, np.array([0.0, 1e-6])))
    assert second.seconds == pytest.approx(alone.seconds)
    crowded = site.with_layout([("naive",)])
    _, second = simulate(crowded, only("naive"), Load(pair, np.array([0.0, 1e-6])))
    assert second.first_token_seconds > alone.first_token_seconds * (1 + 1e-6)


def test_a_full_replica_gives_way_and_full_ones_refuse(site, questions):
    engine = site.engine.model_copy(update={"max_batch": 1, "max_waiting": 0})
    small = Site(site.recording, site.tokenizer, engine, site.layout)
    outcomes = simulate(small, only("naive"), Load(questions[:3], np.zeros(3)))
    assert [outcome is None for outcome in outcomes] == [False, False, True]


def test_capacity_is_what_full_replicas_finish(site, questions):
    one, many = site.with_layout([("naive",)]), questions * 10
    outcomes = simulate(one, only("naive"), Load(many, np.zeros(len(many))))
    lasted = max(outcome.finished_at for outcome in outcomes)
    most = [capacity(s.layout, s.recording, questions, rows=2) for s in (one, site)]
    assert len(many) / lasted == pytest.approx(most[0], rel=0.1)
    assert most[1] == pytest.approx(2 * most[0])


def test_layouts():
    per_method = [("a",), ("a",), ("b",), ("b",)]
    assert layout_of("per_method", ["a", "b"], 2) == per_method
    assert layout_of("shared", ["a", "b"], 2) == [("a", "b")] * 4


def test_only_the_routed_policy_sees_the_load(world, questions):
    folder, _, _ = world
    table, config = load_table(folder / "routing"), RouterConfig(exploration=0.0)
    favourite = static_table(table, config)(questions[0], UNLOADED)[0]
    loads = [
        LoadReport(
            replica=method,
            methods=(method,),
            running=2 * (method == favourite),
            waiting=60 * (method == favourite),
            outstanding_tokens=6000 * (method == favourite),
            free_slots=512,
            time=0.0,
        )
        for method in table.methods
    ]
    known = ReplicaLoads(loads)
    assert static_table(table, config)(questions[0], known)[0] == favourite
    ranked = Routed(table, config, seed=0)(questions[0], known)
    assert ranked[0] != favourite
    assert sorted(ranked) == sorted(table.methods)
    drawn = [at_random(table.methods, seed)(questions[0], known)[0] for seed in range(20)]
    assert set(drawn) == set(table.methods)
