"""Routing policies on the tiny profile that these tests measure."""

import pytest

from ops.load.policies import UNLOADED, Question, Routed, at_random, static_table
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from router.table import load_table
from schemas import LoadReport, RouterConfig

pytestmark = pytest.mark.usefixtures("fitted")


def test_only_the_routed_policy_sees_the_load(world):
    folder, _, _ = world
    question = Question((1, 2, 3), 0, Features(3, 10, 0.0), "")
    table, config = load_table(folder / "routing"), RouterConfig(exploration=0.0)
    favourite = static_table(table, config)(question, UNLOADED)[0]
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
    assert static_table(table, config)(question, known)[0] == favourite
    ranked = Routed(table, config, seed=0)(question, known)
    assert ranked[0] != favourite
    assert sorted(ranked) == sorted(table.methods)
    drawn = [at_random(table.methods, seed)(question, known)[0] for seed in range(20)]
    assert set(drawn) == set(table.methods)
