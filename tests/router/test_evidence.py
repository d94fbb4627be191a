"""What evidence says of cells that have little of their own: other bands, other methods, the
machine."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import CENTROIDS, ENCODER, METHODS, make_profile, observe, report

from router import evidence
from router.constraints import Constraints
from router.fit.assign import build_table
from router.learner import Learner
from router.policy import choose
from router.prompt import Features
from schemas import RouterConfig, RoutingTable

GREEDY, LOW, HIGH = range(3)
NAIVE, DRAFT, NGRAM = range(3)
MADE = build_table(*make_profile(), CENTROIDS, ENCODER)
LIMITS = Constraints(healthy=frozenset(METHODS))


def with_live(table: RoutingTable, cells: dict[tuple[int, int, int], tuple[float, float]]):
    """The table with live answers in cells (cluster, method, band): how many, and tokens a step."""
    tokens, steps = table.live.tokens.copy(), table.live.steps.copy()
    for cell, (answers, acceptance) in cells.items():
        tokens[cell] = evidence.ANSWER_TOKENS * answers
        steps[cell] = tokens[cell] / acceptance
    return table.with_live(tokens=tokens, steps=steps)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_above_temperature_0_a_cluster_still_has_its_own_favourite(temperature: float) -> None:
    """All evidence is greedy: it says more of the cluster than other clusters' do."""
    prompt = Features(20, 128, temperature)
    chosen = [choose(MADE, replace(prompt, cluster=k), (), LIMITS, RouterConfig()) for k in (0, 1)]
    assert [d.method for d in chosen] == ["draft", "ngram"]
    assert [d.reason for d in chosen] == ["preferred", "preferred"]
    accepted = evidence.acceptance(MADE)
    np.testing.assert_allclose(accepted[:, :, HIGH], accepted[:, :, GREEDY], rtol=0.3)


def test_what_temperature_costs_a_method_is_learned_from_other_clusters() -> None:
    """n-gram accepts half as much above temperature 0, as the second cluster shows."""
    before = evidence.acceptance(MADE)[0, NGRAM, HIGH]
    shown = with_live(MADE, {(1, NGRAM, HIGH): (200.0, 2.5)})
    after = evidence.acceptance(shown)
    assert after[1, NGRAM, HIGH] == pytest.approx(2.5, rel=0.1)
    assert after[0, NGRAM, HIGH] < before
    assert after[0, DRAFT, HIGH] == pytest.approx(evidence.acceptance(MADE)[0, DRAFT, HIGH])


def test_a_few_answers_without_an_accepted_token_make_no_method_plain() -> None:
    nothing = np.zeros_like(MADE.acceptance_tokens)
    unknown = MADE.model_copy(update={"acceptance_tokens": nothing, "acceptance_steps": nothing})
    known = [
        evidence.plain(with_live(unknown, {(0, NGRAM, GREEDY): (n, 1.0)})) for n in (1.0, 20.0)
    ]
    assert [plain.tolist() for plain in known] == [[False] * 3, [False, False, True]]
    assert (
        evidence.log_error(with_live(unknown, {(0, NGRAM, GREEDY): (1.0, 1.0)}))[0, NGRAM, 0] > 0.2
    )


def test_a_slow_machine_slows_methods_that_were_not_tried_yet() -> None:
    """Two methods take three times as long as measured: so will the third."""
    learner = Learner(MADE)
    for i in range(10):
        for m in ("draft", "ngram"):
            learner.observe([observe(MADE, f"{m}{i}", m, i % 2, slower=3.0)])
    ratio = learner.table.live.step_ratio
    assert ratio[DRAFT] == pytest.approx(3.0, rel=0.1)
    assert ratio[NAIVE] > 1.8
    assert learner.table.assignment == MADE.assignment


def test_one_method_that_is_slow_may_be_alone_in_it() -> None:
    learner = Learner(MADE)
    for i in range(20):
        learner.observe([observe(MADE, str(i), "draft", 0, slower=4.0)])
    ratio, errors = learner.table.live.step_ratio, evidence.log_error(learner.table)
    assert ratio[DRAFT] == pytest.approx(4.0, rel=0.1)
    assert ratio[NGRAM] == pytest.approx(2.0, rel=0.1)
    assert errors[0, NGRAM, 0] > 0.5, "twice as slow, or four times, or not at all"
    assert errors[0, DRAFT, 0] < 0.2


@given(
    accepted=st.lists(st.floats(1.0, 5.0), min_size=2, max_size=2),
    answers=st.floats(0.0, 40.0),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    cluster=st.integers(0, 1),
    reported=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_on_an_idle_service_load_decides_nothing(accepted, answers, temperature, cluster, reported):
    """Whatever is known, and however thinly."""
    cells = {(cluster, m, GREEDY): (answers, accepted[m - 1]) for m in (DRAFT, NGRAM)}
    table = with_live(MADE, cells)
    idle = tuple(map(report, METHODS))
    prompt = Features(20, 128, temperature, cluster=cluster)
    decision = choose(table, prompt, idle if reported else (), LIMITS, RouterConfig())
    assert decision.reason == "preferred"
