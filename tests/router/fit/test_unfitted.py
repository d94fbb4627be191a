"""A portfolio that nobody has measured: served at once, and learned about."""

import numpy as np
import pytest
from routing_world import ENCODER, UNDER, observe

from router.cluster import packed
from router.constraints import Constraints
from router.drift import DriftWatch
from router.fit.unfitted import unfitted_table
from router.learner import Learner
from router.policy import choose
from router.prompt import Features
from router.table import load_table, restrict, save_table
from schemas import MethodSpec, RouterConfig, RoutingTable

CONFIG = RouterConfig()


def spec(name: str, **fields: str) -> MethodSpec:
    return MethodSpec.model_validate({"name": name, "lossless": True, "source": "here", **fields})


SPECS = (spec("draft", drafter="draft_model"), spec("naive"), spec("ngram", drafter="ngram"))


@pytest.fixture
def table() -> RoutingTable:
    return unfitted_table(SPECS, ENCODER, UNDER)


def first(table: RoutingTable, cluster: int = 0) -> tuple[str, str]:
    limits = Constraints(healthy=frozenset(table.methods))
    decision = choose(table, Features(20, 128, cluster=cluster), (), limits, CONFIG)
    return decision.method, decision.reason


@pytest.mark.parametrize("default", [None, "ngram"])
def test_until_something_is_learned_prompts_go_to_the_default(default: str | None) -> None:
    table = unfitted_table(SPECS, ENCODER, UNDER, default)
    assert first(table) == (default or "naive", "preferred")
    assert first(table, cluster=-1) == (default or "naive", "degraded")


def test_where_all_speculate_the_first_is_the_default() -> None:
    assert unfitted_table([SPECS[2], SPECS[0]], ENCODER, UNDER).default_method == "ngram"


def test_no_kind_of_prompts_is_a_drift(table: RoutingTable) -> None:
    watch = DriftWatch(table)
    for kind in (0, 1):
        for _ in range(200):
            watch.see(packed(np.eye(4)[kind]))
    assert watch.report().share_farther is None


def test_it_is_a_table_like_others(table: RoutingTable, tmp_path) -> None:
    save_table(table, tmp_path)
    read = load_table(tmp_path, ENCODER, {one.name: one.settings_hash() for one in SPECS})
    assert read.methods == tuple(one.name for one in SPECS)
    assert restrict(read, ["draft", "ngram"]).default_method in ("draft", "ngram")


def test_what_was_learned_belongs_to_this_portfolio(table: RoutingTable) -> None:
    learner = Learner(table)
    learner.observe([observe(table, "a", "ngram", 0)])
    assert Learner.restore(table, learner.state()).table.live.steps.sum() > 0
    other = [*SPECS[:2], spec("ngram", drafter="ngram", verifier="one_hot")]
    assert unfitted_table(other, ENCODER, UNDER).fit_id != table.fit_id
