"""What steps are expected to cost, by what steps have cost."""

import math
import random

import numpy as np
import pytest

from workers.drafting.step_costs import DraftSeconds, Seconds, StepCosts

MEASURED_FIRST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def staircase(rows: float) -> float:
    """Six rows at a time, and what every row costs besides."""
    return 0.02 + 0.004 * math.ceil(rows / 6) + 0.0005 * rows


def test_nothing_is_known_at_first():
    assert Seconds().of(3) == 0.0
    assert StepCosts().step(np.arange(3.0), 100).tolist() == [0.0, 0.0, 0.0]


def test_between_two_sizes_it_is_their_distance_and_beyond_them_the_slope():
    seconds = Seconds()
    for size, took in ((2, 1.0), (4, 3.0)):
        seconds.saw(size, took)
    assert seconds.of(np.array([1.0, 2, 3, 4, 6])).tolist() == [1.0, 1.0, 2.0, 3.0, 5.0]


def test_more_never_costs_less():
    seconds = Seconds()
    for size, took in ((1, 1.0), (2, 3.0), (3, 2.0), (4, 2.5)):
        seconds.saw(size, took)
    known = seconds.of(np.arange(1.0, 6.0))
    assert known.tolist() == sorted(known)
    assert seconds.of(2.0) == pytest.approx(2.5)


def test_a_machine_that_became_slower_is_noticed():
    seconds = Seconds()
    seconds.saw(1, 1.0)
    for _ in range(100):
        seconds.saw(1, 2.0)
    assert seconds.of(1.0) == pytest.approx(2.0, rel=0.01)


def test_a_machine_that_was_busy_at_first_is_found_out():
    """Every size took three times as long when it was measured; only one is used since."""
    seconds = Seconds()
    for rows in MEASURED_FIRST:
        seconds.saw(rows, 3.0 * staircase(rows))
    for _ in range(400):
        seconds.saw(1, staircase(1))
    assert seconds.of(8.0) == pytest.approx(staircase(8), rel=0.35)


def test_what_was_measured_in_a_bad_moment_is_tried_again():
    seconds = Seconds()
    seconds.saw(1, 1.0)
    seconds.saw(8, 9.0)
    for _ in range(25_000):
        seconds.saw(1, 1.0)
    assert seconds.of(1.0) == pytest.approx(1.0), "what is known stays"
    assert seconds.of(8.0) < 1.2
    seconds.saw(8, 1.5)
    assert seconds.of(8.0) == pytest.approx(1.5, rel=0.25)


def test_unseen_mixes_are_within_15_percent():
    """Trained on what one sequence costs and some mixes; judged on others, contexts included."""
    costs, draw = StepCosts(), random.Random(1)

    def forward(rows: int, context: int) -> float:
        return (staircase(rows) + 2e-6 * context) * draw.uniform(0.95, 1.05)

    def mix() -> tuple[int, int]:
        sequences = draw.randint(1, 16)
        rows = sum(1 + draw.choice([0, 0, 2, 4, 8]) for _ in range(sequences))
        return rows, sum(draw.randint(50, 1500) for _ in range(sequences))

    for rows in MEASURED_FIRST:
        costs.saw_forward(rows, 0, forward(rows, 0))
    for _ in range(500):
        rows, context = mix()
        costs.saw_forward(rows, context, forward(rows, context))
        costs.saw_rest(0.003)
    errors = []
    for _ in range(200):
        rows, context = mix()
        truth = staircase(rows) + 2e-6 * context + 0.003
        errors.append(abs(float(costs.step(rows, context)) / truth - 1.0))
    assert np.mean(errors) < 0.05
    assert np.max(errors) < 0.15


def test_a_draft_says_something_of_other_drafts():
    """Of a few numbers of levels and sequences that were measured, noise included."""
    drafts, draw = DraftSeconds(), random.Random(1)
    assert drafts.of(3, 2) == 0.0

    def seconds(levels: int, sequences: int) -> float:
        return 0.001 + 0.002 * levels + 0.0001 * sequences + 0.0003 * levels * sequences

    for levels, sequences in [(1, 1), (2, 1), (1, 8), (3, 4)] * 20:
        drafts.saw(levels, sequences, seconds(levels, sequences) * draw.uniform(0.95, 1.05))
    for levels in range(1, 5):
        for sequences in range(1, 17):
            assert drafts.of(levels, sequences) == pytest.approx(
                seconds(levels, sequences), rel=0.15
            )


def test_the_first_draft_is_no_bar_to_longer_ones():
    drafts = DraftSeconds()
    drafts.saw(2, 1, 0.004)
    assert 0.004 < drafts.of(4, 1) < 0.008
    assert drafts.of(2, 8) < 8 * 0.004
