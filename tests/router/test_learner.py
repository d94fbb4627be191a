import numpy as np
import pytest
from routing_world import answer_seconds, observe

from router import decaying_sums
from router.evidence import (
    ANSWER_TOKENS,
    acceptance,
    acceptance_evidence,
    answers,
    log_error,
    plain,
)
from router.favourites import favourite, typical_seconds
from router.learner import KEPT_OF_HEAD, REMEMBERED_IDS, Learner
from schemas import RoutingTable


def test_each_observation_counts_once(table: RoutingTable) -> None:
    learner = Learner(table)
    answer = observe(table, "a", "ngram", 1)
    assert learner.observe([answer, answer])
    once = learner.table
    assert once.version == table.version + 1
    assert once.live.tokens[1, 2, 0] == ANSWER_TOKENS
    assert not learner.observe([answer])
    assert learner.table is once


@pytest.mark.parametrize("changes", [{"finish_reason": "error"}, {"method": "medusa"}])
def test_what_says_nothing_of_speed_is_ignored(table, changes):
    learner = Learner(table)
    assert not learner.observe([observe(table, "a", "ngram", 1, **changes)])
    assert learner.table is table


def test_another_fit_is_ignored(table: RoutingTable) -> None:
    other = table.model_copy(update={"fit_id": "older"})
    learner = Learner(table)
    assert not learner.observe([observe(other, "a", "ngram", 1)])


def test_the_memory_of_ids_is_bounded(table: RoutingTable) -> None:
    learner = Learner(table)
    short = {"output_tokens": 1, "target_steps": 1}
    learner.observe(observe(table, str(i), "naive", 0, **short) for i in range(REMEMBERED_IDS + 10))
    assert len(learner.state()["seen"]) == REMEMBERED_IDS


def test_a_long_answer_does_not_outvote_the_others_of_its_cluster(table):
    """Nine answers at 1 token a step and one, ten times as long, at 8: not far from 1."""
    learner = Learner(table)
    short = {"output_tokens": 41, "target_steps": 41}
    learner.observe([observe(table, str(i), "ngram", 1, **short) for i in range(9)])
    long = observe(table, "long", "ngram", 1, output_tokens=401, target_steps=51)
    learner.observe([long])
    live = learner.table
    assert live.live.tokens[1, 2, 0] / live.live.steps[1, 2, 0] < 1.2
    assert acceptance_evidence(401, 51, "speedup", 0.0)[0] == ANSWER_TOKENS
    assert acceptance_evidence(1, 1, "speedup", 0.0) == (0.0, 0.0)


def test_a_lossy_methods_loops_do_not_flatter_it(table: RoutingTable) -> None:
    lossy = table.model_copy(update={"lossless": {"naive": True, "draft": True, "ngram": False}})
    for made, tokens in ((table, ANSWER_TOKENS), (lossy, 0.0)):
        learner = Learner(made)
        learner.observe([observe(made, "a", "ngram", 1, looping=True)])
        assert learner.table.live.tokens[1, 2, 0] == tokens


def test_what_a_grammar_forces_is_no_acceptance(table: RoutingTable) -> None:
    """One such answer of plain decoding made its acceptance uncertain in all clusters."""
    learner = Learner(table)
    forced = observe(table, "a", "naive", 1, target_steps=31, decode_seconds=0.6)
    learner.observe([forced.model_copy(update={"grammar": True})])
    after = learner.table
    assert plain(after)[0]
    assert after.live.tokens.sum() == after.live.steps.sum() == 0.0
    assert after.live.step_weight[0] > 0.0
    assert after.live.answers[1] == 1.0


def test_choices_of_one_prompt_count_as_one_answer(table: RoutingTable) -> None:
    one, several = Learner(table), Learner(table)
    slow = {"decode_seconds": 2.0}
    choices = [observe(table, str(i), "ngram", 1, **slow) for i in range(4)]
    one.observe([observe(table, "a", "ngram", 1, **slow)])
    several.observe([o.model_copy(update={"choices": 4}) for o in choices])
    for array in ("tokens", "steps", "output", "answers", "step_weight", "step_ratio"):
        expected = getattr(one.table.live, array)
        np.testing.assert_allclose(getattr(several.table.live, array), expected, rtol=0.05)


def test_the_reading_of_others_prompts_is_not_a_methods_slowness(table: RoutingTable) -> None:
    alone, beside = Learner(table), Learner(table)
    own, _ = answer_seconds("ngram", 1)
    for i in range(10):
        alone.observe([observe(table, str(i), "ngram", 1, decode_seconds=own)])
        stalled = {"decode_seconds": own + 3.0, "stalled_seconds": 3.0}
        beside.observe([observe(table, str(i), "ngram", 1, **stalled)])
    np.testing.assert_allclose(beside.table.live.step_ratio, alone.table.live.step_ratio, rtol=1e-6)


def test_old_evidence_halves_in_a_half_life(table, monkeypatch):
    monkeypatch.setattr(decaying_sums, "HALF_LIFE", 10.0)
    learner = Learner(table)
    learner.observe([observe(table, "first", "ngram", 1)])
    before = learner.table.live.tokens[1, 2, 0]
    learner.observe([observe(table, str(i), "ngram", 1) for i in range(10)])
    fresh = before * sum(0.5 ** (i / 10) for i in range(10))
    assert learner.table.live.tokens[1, 2, 0] == pytest.approx(before / 2 + fresh)


def test_what_is_not_seen_is_forgotten_too(table, monkeypatch):
    """Acceptance with the cluster's observations, step times with all: whoever they are of."""
    monkeypatch.setattr(decaying_sums, "HALF_LIFE", 10.0)
    learner = Learner(table)
    learner.observe([observe(table, f"slow {i}", "draft", 0, slower=2.0) for i in range(20)])
    before = learner.table
    learner.observe([observe(table, f"other {i}", "naive", 1) for i in range(40)])
    after = learner.table
    assert after.live.step_weight[1] == pytest.approx(before.live.step_weight[1] / 2)
    assert 1.0 < after.live.step_ratio[1] < before.live.step_ratio[1]
    assert after.live.tokens[0, 1, 0] == before.live.tokens[0, 1, 0]
    assert (log_error(after)[:, 1] > log_error(before)[:, 1]).all()
    learner.observe([observe(table, f"same {i}", "naive", 0) for i in range(10)])
    assert learner.table.live.tokens[0, 1, 0] == pytest.approx(before.live.tokens[0, 1, 0] / 2)


def live(table: RoutingTable, cluster: int, tokens_per_step: float, answers: float) -> RoutingTable:
    """The table with so many live answers of n-gram, greedy, on one cluster."""
    tokens, steps = table.live.tokens.copy(), table.live.steps.copy()
    tokens[cluster, 2, 0] = answers * ANSWER_TOKENS
    steps[cluster, 2, 0] = answers * ANSWER_TOKENS / tokens_per_step
    return table.with_live(tokens=tokens, steps=steps)


def test_live_answers_overrule_the_profile_where_they_contradict_it(table: RoutingTable) -> None:
    """The profile has 5 tokens a step on the second cluster, from ten answers."""
    assert acceptance(live(table, 1, 1.2, 10.0))[1, 2, 0] < 1.3
    # by no more than chance explains: the two are averaged
    between = acceptance(live(table, 1, 4.0, 10.0))[1, 2, 0]
    assert 3.8 < between < 4.5
    # two answers are no proof
    assert log_error(live(table, 1, 1.2, 2.0))[1, 2, 0] > log_error(table)[1, 2, 0]
    # what is forgotten overrules nothing
    faint = acceptance(live(table, 1, 1.2, 0.01))[1, 2, 0]
    assert faint == pytest.approx(acceptance(table)[1, 2, 0], rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "answers", "errors", "expected"),
    [
        ([1.0, 0.97], [50, 50], [0.01, 0.01], 0),  # within the margin
        ([1.0, 0.94], [50, 50], [0.01, 0.01], 1),
        ([1.0, 0.80], [50, 50], [0.10, 0.30], 0),  # ahead with a probability of 0.76
        ([1.0, 0.80], [50, 50], [0.10, 0.20], 1),  # of 0.84
        ([1.0, 0.50], [50, 7], [0.01, 0.01], 0),
        ([1.0, 0.50], [7, 50], [0.01, 0.01], 0),
    ],
)
def test_a_favourite_gives_way_to_a_clear_and_proven_lead(seconds, answers, errors, expected):
    assert favourite(seconds, answers, errors, 0, (0, 1)) == expected


def test_a_favourite_that_is_not_admissible_gives_way_to_the_fastest() -> None:
    won = favourite([1.0, 3.0, 2.0], [50, 50, 0], [0.1, 0.1, 0.1], 0, (1, 2))
    assert won == 2


DRAFTS_WITH = {"draft": ("eagle3",), "ngram": ()}


def test_evidence_of_a_method_is_discounted_once_when_its_head_changes(table) -> None:
    learner = Learner(table)
    short = {"output_tokens": 41, "target_steps": 21}
    for name in ("draft", "ngram"):
        learner.observe(observe(table, f"{name} {i}", name, 1, **short) for i in range(9))
    before = learner.table
    assert not learner.follow_heads({}, DRAFTS_WITH)
    assert not learner.follow_heads({"eagle3": 0, "medusa": 0}, DRAFTS_WITH)
    assert learner.table is before
    assert [learner.follow_heads({"eagle3": 4}, DRAFTS_WITH) for _ in range(2)] == [True, False]
    after = learner.table
    kept = np.array([1.0, KEPT_OF_HEAD, 1.0])[None, :, None]
    np.testing.assert_allclose(after.live.tokens, kept * before.live.tokens)
    np.testing.assert_allclose(after.live.steps, kept * before.live.steps)
    np.testing.assert_array_equal(after.live.profile_share, kept[0, :, 0])
    # The estimate stays until answers of the new head come; it is less certain.
    np.testing.assert_allclose(acceptance(after)[1], acceptance(before)[1], rtol=0.02)
    assert answers(after)[1, 1, 0] < 0.5 * answers(before)[1, 1, 0]
    assert log_error(after)[1, 1, 0] > log_error(before)[1, 1, 0]
    # A learner that goes on from the state does not discount it again, and the profiled head's
    # return brings the profile back.
    again = Learner.restore(table, learner.state())
    assert not again.follow_heads({"eagle3": 4}, DRAFTS_WITH)
    np.testing.assert_array_equal(again.table.live.profile_share, kept[0, :, 0])
    assert again.follow_heads({}, DRAFTS_WITH)
    np.testing.assert_array_equal(again.table.live.profile_share, np.ones(3))
    np.testing.assert_allclose(again.table.live.tokens, kept**2 * before.live.tokens)


def test_a_favourite_that_looked_faster_than_it_is_gives_way_again(table: RoutingTable) -> None:
    """Of two methods that are as fast in this cluster one had a few quick answers at first."""
    draft, ngram = table.methods.index("draft"), table.methods.index("ngram")
    steps = table.acceptance_steps.copy()
    steps[0, ngram] = table.acceptance_tokens[0, ngram] / 1.6
    near = table.model_copy(update={"acceptance_steps": steps})
    seconds = typical_seconds(near)[0, :, 0]
    assert 1.0 < seconds[ngram] / seconds[draft] < 1.05
    learner = Learner(near)

    def answers(name: str, count: int, pace: float) -> None:
        for i in range(count):
            acceptance, step = {"draft": (2.5, 0.015), "ngram": (1.6, 0.011)}[name]
            decode_steps = round(60 / acceptance)
            seconds = pace * step * decode_steps
            took = {"target_steps": decode_steps + 1, "decode_seconds": seconds}
            learner.observe([observe(near, f"{name}-{pace}-{i}", name, 0, **took)])

    answers("draft", 8, 1.0)
    answers("ngram", 8, 0.6)
    assert learner.table.assignment[0][0] == "ngram"
    answers("ngram", 60, 1.0)
    assert learner.table.assignment[0][0] == "draft"


def test_a_restart_goes_on_with_the_live_favourites_and_still_knows_the_fits(table):
    learner = Learner(table)
    changed = learner.state() | {"assignment": [["ngram"] * 3, ["draft"] * 3]}
    again = Learner.restore(table, changed)
    assert again.table.assignment == table.assignment, "both are faster where the fit says so"
