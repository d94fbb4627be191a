"""How fast the machine is: what all methods share, what is a method's own, and pauses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import CENTROIDS, ENCODER, METHODS, make_profile, observe

from router.fit.assign import build_table
from router.learner import Learner
from router.table import restrict
from router.times import MachineSpeed, Ratios, step_timing
from schemas import Observation
from schemas.observation import WARM_UP

MADE = build_table(*make_profile(), CENTROIDS, ENCODER)


def answered(number: int, method: str, slower: float, began: float | None = None) -> Observation:
    """Return a response that is `slower`, the number-th in a row unless it says when it began."""
    made = observe(MADE, str(number), method, 0, slower)
    at = 10.0 * number if began is None else began
    return made.model_copy(update={"time": at + made.stats.total_seconds})


def learned(*observations: Observation) -> np.ndarray:
    speed = MachineSpeed(MADE)
    for one in observations:
        speed.observe(MADE, one)
    return speed.live()["step_ratio"]


def test_a_slower_machine_is_slower_with_all_methods() -> None:
    ratio = learned(*(answered(i, "draft", 1.5) for i in range(6)))
    assert ratio == pytest.approx(1.5, rel=0.05)


def test_a_slower_method_is_slow_alone() -> None:
    rows = [
        answered(2 * i + j, name, s)
        for i in range(6)
        for j, (name, s) in enumerate([("draft", 1.0), ("ngram", 3.0)])
    ]
    ratio = learned(*rows)
    assert ratio[METHODS.index("ngram")] == pytest.approx(3.0, rel=0.1)
    assert ratio[METHODS.index("draft")] == pytest.approx(1.0, rel=0.1)
    assert ratio[METHODS.index("naive")] < 1.4


@pytest.mark.parametrize("together", [1, 2, 4])
def test_a_pause_that_hits_responses_side_by_side_teaches_nothing(together: int) -> None:
    before = [answered(i, "draft", 1.0) for i in range(10)]
    paused = [answered(20 + i, "draft", 500.0, began=200.0 + 0.1 * i) for i in range(together)]
    assert learned(*before, *paused) == pytest.approx(learned(*before), rel=0.02)


def test_the_second_slow_response_in_a_row_counts() -> None:
    before = [answered(i, "draft", 1.0) for i in range(10)]
    slow = [answered(20 + i, "draft", 20.0) for i in range(2)]
    after = learned(*before, *slow)
    assert after[METHODS.index("draft")] == pytest.approx(20.0, rel=0.3)
    assert after[METHODS.index("ngram")] < 10.0


def test_a_faster_response_counts_at_once() -> None:
    before = [answered(i, "draft", 1.0) for i in range(10)]
    after = learned(*before, answered(20, "ngram", 0.2))
    assert after[METHODS.index("ngram")] == pytest.approx(0.2, rel=0.3)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(-3, 3), st.floats(0, 1)), min_size=1, max_size=40
    )
)
def test_the_covariance_stays_one(rows: list[tuple[int, float, float]]) -> None:
    ratios = Ratios(3, batched=True)
    for i, (method, value, fullness) in enumerate(rows):
        slopes = ratios.slopes({method: 1.0}, fullness)
        ratios.observe(method, slopes, value, 0.02, (2.0 * i, 2.0 * i + 1.0))
    assert np.linalg.eigvalsh(ratios.covariance).min() > -1e-9
    assert np.isfinite(ratios.mean).all()


def test_what_is_not_seen_is_not_forgotten() -> None:
    ratios = Ratios(2)
    for method in (0, 1):
        for i in range(20):
            ratios.observe(method, ratios.slopes({method: 1.0}), 0.2 * method, 0.01, (i, i + 0.5))
    before = ratios.covariance[2, 2]
    for i in range(500):
        ratios.observe(0, ratios.slopes({0: 1.0}), 0.0, 0.01, (100 + i, 100.5 + i))
    assert ratios.covariance[2, 2] <= 1.5 * before
    assert ratios.of()[0][1] == pytest.approx(0.2, abs=0.05)


def test_warm_up_teaches_times_alone() -> None:
    learner = Learner(MADE)
    rows = [answered(i, "draft", 3.0).model_copy(update={"policy": WARM_UP}) for i in range(3)]
    learner.observe(rows)
    live = learner.table.live
    assert live.step_ratio[METHODS.index("draft")] == pytest.approx(3.0, rel=0.1)
    assert live.steps.sum() == live.answers.sum() == 0.0


def test_full_batches_have_a_ratio_of_their_own() -> None:
    speed = MachineSpeed(MADE)
    for i in range(12):
        speed.observe(MADE, answered(2 * i, "draft", 1.0))
        full = observe(MADE, f"full{i}", "draft", 0, 3.1 * 1.3, mean_batch=8.0)
        speed.observe(MADE, full.model_copy(update={"time": 10.0 * (2 * i + 1)}))
    live, draft = speed.live(), METHODS.index("draft")
    assert live["step_ratio"][draft] == pytest.approx(1.0, rel=0.05)
    assert live["batch_ratio"][draft] == pytest.approx(1.3, rel=0.1)


def test_in_a_mixed_batch_each_method_answers_for_its_share() -> None:
    mixed = observe(MADE, "a", "draft", 0, mean_batch=4.0)
    stats = mixed.stats.model_copy(update={"batch_by_method": {"draft": 1.0, "ngram": 3.0}})
    timing = step_timing(MADE, stats)
    assert timing is not None
    assert sum(timing[1].values()) == pytest.approx(1.0)
    assert timing[1][METHODS.index("ngram")] > timing[1][METHODS.index("draft")]


def test_a_state_goes_on_with_the_same_methods_alone() -> None:
    learner = Learner(MADE)
    learner.observe([answered(i, "draft", 3.0) for i in range(4)])
    ratio = learner.table.live.step_ratio
    again = Learner.restore(MADE, learner.state()).table.live.step_ratio
    np.testing.assert_allclose(again, ratio)
    fewer = Learner.restore(restrict(MADE, ["naive", "ngram"]), learner.state())
    assert fewer.table.live.step_ratio == pytest.approx(1.0)
