"""What a learner has learned goes on in the next one."""

import json

import numpy as np
import pytest
from routing_world import METHODS, observe
from simulated_service import SimulatedService, World

from router.learner import Learner
from router.table import RoutingTableError, restrict
from schemas import RouterConfig, RoutingTable

CONFIG = RouterConfig()


def test_state_survives_json_and_a_restart(table: RoutingTable) -> None:
    service = SimulatedService(table, CONFIG, seed=3)
    service.run(60, World(slower={"ngram": 4.0}), cluster=1)
    learner = service.learner
    cut = {"output_tokens": 200, "finish_reason": "length", "temperature": 1.0}
    slow = {"first_token_seconds": 0.04, "prompt_tokens": 20}
    learner.observe(
        observe(table, f"{i} {more}", "ngram", 1, **more) for i in range(20) for more in (cut, slow)
    )
    assert learner.table.live.prefill_ratio[METHODS.index("ngram")] > 1.3
    saved = json.loads(json.dumps(learner.state()))
    again = Learner.restore(table, saved)
    assert again.table.assignment == learner.table.assignment
    assert again.table.version > learner.table.version
    assert not again.observe([observe(table, "3", "ngram", 1)])
    for more in ({}, cut, slow):  # they go on from the same sums
        for one in (learner, again):
            one.observe([observe(table, f"more {more}", "ngram", 1, **more)])
        for name, learned in learner.table.live.arrays().items():
            np.testing.assert_allclose(again.table.live.arrays()[name], learned, err_msg=name)


def test_a_smaller_portfolio_takes_over_what_it_still_serves(table: RoutingTable) -> None:
    service = SimulatedService(table, CONFIG, seed=0)
    service.run(30, cluster=1)
    learner = service.learner
    small = Learner.restore(restrict(table, METHODS[:2]), learner.state())
    assert {name for row in small.table.assignment for name in row} <= {"naive", "draft"}
    np.testing.assert_allclose(small.table.live.steps, learner.table.live.steps[:, :2])
    ours, theirs = small.table.live.prefill_ratio, learner.table.live.prefill_ratio
    np.testing.assert_allclose(ours, theirs[:2], rtol=0.1)


def test_a_foreign_or_broken_state_is_refused(table: RoutingTable) -> None:
    state = Learner(table).state()
    with pytest.raises(RoutingTableError, match=f"older.*{table.fit_id}"):
        Learner.restore(table, {**state, "fit_id": "older"})
    del state["live_tokens"]
    with pytest.raises(RoutingTableError, match="not readable"):
        Learner.restore(table, state)
