"""Tables that no profile was fitted for: of a portfolio that nobody measured, and learned ones."""

import numpy as np
import pytest
from routing_world import ENCODER, METHODS, UNDER, observe

from router import preferred
from router.cluster import packed
from router.constraints import Constraints
from router.drift import DriftWatch
from router.fit.unfitted import promoted, unfitted_table
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
def unfitted() -> RoutingTable:
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


def test_no_kind_of_prompts_is_a_drift(unfitted: RoutingTable) -> None:
    watch = DriftWatch(unfitted)
    for kind in (0, 1):
        for _ in range(200):
            watch.see(packed(np.eye(4)[kind]))
    assert watch.report().share_farther is None


def test_it_is_a_table_like_others(unfitted: RoutingTable, tmp_path) -> None:
    save_table(unfitted, tmp_path)
    read = load_table(tmp_path, ENCODER, {one.name: one.settings_hash() for one in SPECS})
    assert read.methods == tuple(one.name for one in SPECS)
    assert restrict(read, ["draft", "ngram"]).default_method in ("draft", "ngram")


def test_what_was_learned_belongs_to_this_portfolio(unfitted: RoutingTable) -> None:
    learner = Learner(unfitted)
    learner.observe([observe(unfitted, "a", "ngram", 0)])
    assert Learner.restore(unfitted, learner.state()).table.live.steps.sum() > 0
    other = [*SPECS[:2], spec("ngram", drafter="ngram", verifier="one_hot")]
    assert unfitted_table(other, ENCODER, UNDER).fit_id != unfitted.fit_id


def test_a_promoted_table_predicts_what_the_learned_one_predicts(table, tmp_path) -> None:
    learner = Learner(table)
    # n-gram accepts twice what was profiled, and its steps take three times as long
    other = {"target_steps": 16, "decode_seconds": 15 * 0.036, "first_token_seconds": 0.02}
    learner.observe(observe(table, str(index), "ngram", 0, **other) for index in range(60))
    learned = learner.table
    made = promoted(learned)
    assert made.assignment == learned.assignment
    assert made.fit_id != learned.fit_id
    assert made.live.steps.sum() == 0.0
    theirs, ours = preferred.typical_seconds(learned), preferred.typical_seconds(made)
    assert not np.allclose(preferred.typical_seconds(table), theirs, rtol=0.2), "it has learned"
    np.testing.assert_allclose(ours, theirs, rtol=0.05)
    assert made.provenance["promoted_from"]["version"] == learned.version

    save_table(made, tmp_path)
    assert load_table(tmp_path).fit_id == made.fit_id
    assert promoted(table).step_seconds[METHODS.index("ngram")] == pytest.approx(
        table.step_seconds[METHODS.index("ngram")]
    )
