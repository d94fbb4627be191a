"""What steps and drafts are expected to cost, by what they have cost."""

import math
import random

import numpy as np
import pytest

from workers.drafting.step_costs import Draft, DraftSeconds, StepSeconds

MEASURED_FIRST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def staircase(rows: float) -> float:
    """Six rows at a time, and what every row costs besides."""
    return 0.02 + 0.004 * math.ceil(rows / 6) + 0.0005 * rows


def measured(slower: float = 1.0) -> StepSeconds:
    """What one sequence takes by its rows was measured, when the machine was so much slower."""
    seconds = StepSeconds()
    for rows in MEASURED_FIRST:
        seconds.measured(rows, slower * staircase(rows))
    return seconds


def expected(seconds: StepSeconds, rows: int, sequences: int = 1, context: int = 0) -> float:
    return float(seconds.of(np.array([float(rows)]), sequences, context)[0])


def test_what_was_measured_first_is_believed():
    for rows in MEASURED_FIRST:
        assert expected(measured(), rows) == pytest.approx(staircase(rows))
    assert expected(measured(), 80) > staircase(64)


def test_more_never_costs_less():
    seconds = measured()
    for _ in range(50):
        seconds.saw([16], 100, 0.5 * staircase(16))
        seconds.saw([4], 100, 2.0 * staircase(4))
    known = seconds.of(np.arange(1.0, 80.0), 1, 100)
    assert known.tolist() == sorted(known)


@pytest.mark.parametrize("slower", [0.4, 2.5])
def test_a_machine_that_became_slower_or_faster_is_noticed_at_all_sizes(slower):
    """Every size was measured at first; only two are used since."""
    seconds = measured()
    for _ in range(400):
        seconds.saw([1], 50, slower * staircase(1))
        seconds.saw([6], 50, slower * staircase(6))
    assert expected(seconds, 1, 1, 50) == pytest.approx(slower * staircase(1), rel=0.05)
    assert expected(seconds, 24, 1, 50) == pytest.approx(slower * staircase(24), rel=0.2)


def test_what_was_seen_in_a_bad_moment_is_tried_again():
    seconds = measured()
    for _ in range(40):
        seconds.saw([24], 50, 3.0 * staircase(24))
        seconds.saw([1], 50, staircase(1))
    assert expected(seconds, 24, 1, 50) > 2.0 * staircase(24)
    for _ in range(4000):
        seconds.saw([1], 50, staircase(1))
    assert expected(seconds, 24, 1, 50) < 1.25 * staircase(24)


def test_where_nobody_measured_steps_themselves_teach():
    seconds, draw = StepSeconds(), random.Random(1)
    for _ in range(300):
        rows = draw.randint(1, 32)
        seconds.saw([rows], 100, 0.01 + 0.001 * rows)
    for rows in (1, 6, 20, 32):
        assert expected(seconds, rows, 1, 100) == pytest.approx(0.01 + 0.001 * rows, rel=0.15)


def test_unseen_mixes_are_within_15_percent():
    """Trained on what one sequence costs and some mixes; judged on others, contexts included."""
    seconds, draw = measured(), random.Random(1)

    def truth(widths: list[int], context: int) -> float:
        uneven = 0.0004 * len(widths) * (min(widths) < max(widths))
        return staircase(sum(widths)) + 2e-6 * context + 0.0003 * len(widths) + uneven

    def mix() -> tuple[list[int], int]:
        widths = [1 + draw.choice([0, 0, 2, 4, 8]) for _ in range(draw.randint(1, 16))]
        return widths, sum(draw.randint(50, 1500) for _ in widths)

    for _ in range(500):
        widths, context = mix()
        seconds.saw(widths, context, truth(widths, context) * draw.uniform(0.95, 1.05))
    errors = []
    for _ in range(200):
        widths, context = mix()
        if min(widths) < max(widths) or max(widths) == 1:
            known = expected(seconds, sum(widths), len(widths), context)
            errors.append(abs(known / truth(widths, context) - 1.0))
    assert np.mean(errors) < 0.05
    assert np.max(errors) < 0.15


def test_a_draft_says_something_of_other_drafts():
    """Of a few numbers of levels and sequences that were measured, noise included."""
    drafts, draw = DraftSeconds(0.0), random.Random(1)
    assert drafts.of(Draft(3, 2)) == 0.0

    def seconds(levels: int, sequences: int) -> float:
        return 0.001 + 0.002 * levels + 0.0001 * sequences + 0.0003 * levels * sequences

    for levels, sequences in [(1, 1), (2, 1), (1, 8), (3, 4)] * 20:
        drafts.saw(Draft(levels, sequences), seconds(levels, sequences) * draw.uniform(0.95, 1.05))
    for levels in range(1, 5):
        for sequences in range(1, 17):
            assert drafts.of(Draft(levels, sequences)) == pytest.approx(
                seconds(levels, sequences), rel=0.15
            )


def test_a_drafter_is_cheap_until_it_was_seen_and_again_when_that_is_long_ago() -> None:
    drafts, one = DraftSeconds(0.02), Draft(3, 4)
    at_first = drafts.of(one)
    assert 0.0 < at_first < 0.02
    for _ in range(20):
        drafts.saw(one, 0.03)
    assert drafts.of(one) == pytest.approx(0.03, rel=0.05)
    for _ in range(4000):
        drafts.idle()
    assert drafts.of(one) < at_first + 0.002


def test_a_stall_is_not_what_drafts_cost() -> None:
    drafts, one = DraftSeconds(0.02), Draft(2, 1)
    for _ in range(20):
        drafts.saw(one, 0.004)
    drafts.saw(one, 2.0)
    assert drafts.of(one) < 0.006


def test_what_has_to_be_read_first_is_told_apart() -> None:
    drafts = DraftSeconds(0.02)
    for late in (0, 0, 0, 2, 0, 8) * 10:
        drafts.saw(Draft(2, 8, late, 50.0 * late), 0.006 + 0.003 * late)
    assert drafts.of(Draft(2, 8)) == pytest.approx(0.006, rel=0.1)
    assert drafts.of(Draft(2, 8, 4, 200.0)) == pytest.approx(0.018, rel=0.1)


def test_a_drafter_that_was_slow_long_ago_is_tried_again() -> None:
    """A machine that was busy showed twenty forwards for a draft that takes one."""
    drafts, one = DraftSeconds(0.02), Draft(3, 1)
    for _ in range(40):
        drafts.saw(one, 0.4)
    assert drafts.charged(one) > 0.3
    for _ in range(100):
        drafts.idle()
    assert drafts.charged(one) > 0.3, "not at once"
    for _ in range(20_000):
        drafts.idle()
    assert drafts.charged(one) < 0.01
