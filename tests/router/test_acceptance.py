"""The posterior over what methods accept: order does not matter, and its variance is honest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routing_world import CENTROIDS, ENCODER, METHODS, make_profile, observe

from router.acceptance import NOISE, Posterior, acceptance, plain_methods, posterior, profiled
from router.fit.assign import build_table
from router.learner import Learner
from router.preferred import with_preferred
from schemas import RoutingTable

MADE = build_table(*make_profile(per_cluster=30), CENTROIDS, ENCODER)
DRAFT, NGRAM = METHODS.index("draft"), METHODS.index("ngram")
SHAPE = MADE.live.gain.shape


def found(table: RoutingTable, cells: dict[tuple[int, int, int], tuple[float, float]]):
    """Return the posterior of cells with (responses, their mean)."""
    weight, total = np.zeros((2, *SHAPE))
    for cell, (count, mean) in cells.items():
        weight[cell], total[cell] = count, count * mean
    each = [posterior(table, m, weight[:, m], total[:, m], 0.0) for m in range(len(METHODS))]
    gains, errors = (np.stack([one[i] for one in each], axis=1) for i in (0, 1))
    return Posterior(gains, errors, each[DRAFT].shared)


def test_without_responses_the_profile_stands() -> None:
    nothing = found(MADE, {})
    assert not nothing.gain.any()
    assert not nothing.error[:, 0].any(), "plain decoding emits one token a step"
    assert (nothing.error[:, DRAFT] > 0.05).all()
    np.testing.assert_allclose(acceptance(MADE), profiled(MADE))
    assert plain_methods(MADE).tolist() == [True, False, False]


def test_noise_moves_little_and_a_clear_change_moves_all() -> None:
    lucky = found(MADE, {(0, DRAFT, 0): (1.0, NOISE)}).gain[0, DRAFT, 0]
    assert 0.0 < lucky < 0.2 * NOISE
    clear = found(MADE, {(0, DRAFT, 0): (8.0, 0.7), (1, DRAFT, 0): (8.0, 0.7)})
    assert clear.gain[:, DRAFT, 0] == pytest.approx(0.7, abs=0.15)
    assert clear.gain[:, DRAFT, 2] == pytest.approx(0.65, abs=0.2), "in all conditions"


def test_a_cluster_changes_alone() -> None:
    one = found(MADE, {(0, NGRAM, 0): (20.0, 0.0), (1, NGRAM, 0): (20.0, -0.8)})
    assert one.gain[1, NGRAM, 0] == pytest.approx(-0.8, abs=0.15)
    assert abs(one.gain[0, NGRAM, 0]) < 0.1


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1), st.integers(0, 3), st.floats(0.1, 60), st.floats(-2, 2))
def test_a_cells_gain_lies_between_the_profile_and_what_was_seen(k, c, count, mean) -> None:
    made = found(MADE, {(k, NGRAM, c): (count, mean)})
    gain = made.gain[:, NGRAM]
    assert (np.sign(gain) * np.sign(mean) >= 0.0).all()
    assert np.abs(gain).max() <= abs(mean) + 1e-9
    assert np.isfinite(made.error).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1), st.floats(-1.0, 1.0))
def test_more_responses_leave_less_doubt(cluster: int, mean: float) -> None:
    errors = [
        found(MADE, {(cluster, NGRAM, 0): (n, mean)}).error[cluster, NGRAM, 0] for n in (20, 80)
    ]
    assert errors[1] < errors[0] + 1e-9


def test_the_error_is_about_what_is_missed() -> None:
    """Truth drawn from the prior of a right table, twelve responses in each cluster."""
    rng, off = np.random.default_rng(0), []
    for _ in range(200):
        truth = 0.04 * rng.standard_normal() + 0.07 * rng.standard_normal(2)
        seen = truth + NOISE / np.sqrt(12.0) * rng.standard_normal(2)
        made = found(MADE, {(k, DRAFT, 0): (12.0, seen[k]) for k in (0, 1)})
        off.append((made.gain[:, DRAFT, 0] - truth) / made.error[:, DRAFT, 0])
    assert 0.5 < np.std(off) < 1.3


def test_a_method_counted_at_temperature_0_falls_as_the_others_do() -> None:
    tokens, steps = MADE.acceptance_tokens.copy(), MADE.acceptance_steps.copy()
    tokens[:, DRAFT, 2], steps[:, DRAFT, 2] = 300.0, 300.0 / 2.0
    tokens[:, 0, 2] = steps[:, 0, 2] = 300.0
    cooler = MADE.model_copy(update={"acceptance_tokens": tokens, "acceptance_steps": steps})
    made, before = profiled(cooler), profiled(MADE)
    ratio = made[:, DRAFT, 2] / made[:, DRAFT, 0]
    assert made[:, NGRAM, 2] / before[:, NGRAM, 0] == pytest.approx(
        np.maximum(ratio, 1.0 / before[:, NGRAM, 0]), rel=0.1
    )


def test_pinned_and_doubled_responses_teach_no_acceptance() -> None:
    learner = Learner(MADE)
    pinned = observe(MADE, "a", "ngram", 1, target_steps=6)
    learner.observe([pinned.model_copy(update={"reason": "pinned"})])
    assert learner.table.live.steps.sum() == 0.0
    assert learner.table.live.latest.sum() == 0.0
    once = observe(MADE, "b", "ngram", 1, target_steps=6)
    assert learner.observe([once, once])
    assert learner.table.live.steps.sum() == 5.0
    assert not learner.observe([once])


def test_a_wrong_profile_stays_refuted_while_nothing_is_tried() -> None:
    """Prompts returned to n-gram whenever the responses that refute its profile had faded."""
    steps = MADE.acceptance_steps.copy()
    steps[0, NGRAM] = MADE.acceptance_tokens[0, NGRAM] / 5.0
    wrong = with_preferred(MADE.model_copy(update={"acceptance_steps": steps}), None)
    assert wrong.assignment[0][0] == "ngram"
    learner = Learner(wrong)
    learner.observe(observe(wrong, f"n{i}", "ngram", 0) for i in range(30))
    assert learner.table.assignment[0][0] == "draft"
    for i in range(600):
        learner.observe([observe(wrong, f"d{i}", "draft", 0)])
        assert learner.table.assignment[0][0] == "draft"


def test_what_a_grammar_forces_is_learned_for_grammars() -> None:
    learner = Learner(MADE)
    forced = [observe(MADE, str(i), "draft", 0, target_steps=11) for i in range(12)]
    learner.observe(one.model_copy(update={"grammar": True}) for one in forced)
    gain = learner.table.live.gain[0, DRAFT]
    assert gain[3] > 0.4
    assert gain[0] < 0.7 * gain[3]


def test_a_lossy_methods_loops_do_not_flatter_it() -> None:
    lossy = MADE.model_copy(update={"lossless": {"naive": True, "draft": True, "ngram": False}})
    for table, learned in ((MADE, True), (lossy, False)):
        learner = Learner(table)
        learner.observe([observe(table, "a", "ngram", 1, looping=True)])
        assert (learner.table.live.steps.sum() > 0.0) == learned
