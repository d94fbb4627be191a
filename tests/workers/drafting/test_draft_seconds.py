"""What drafts are expected to cost, by what drafts have cost."""

import random

import pytest

from workers.drafting.step_costs import Draft, DraftSeconds


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
