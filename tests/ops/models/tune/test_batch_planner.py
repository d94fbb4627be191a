"""The planner of batch schedules against all schedules there are, and worlds with known ones."""

import itertools
import random
from math import prod

import pytest

from ops.models.tune.batch_planner import BatchCosts, plan_batches
from workers.batch_schedule import BatchSchedule

BATCHES, GAMMAS = (1, 2, 4, 8, 16, 32), (0, 1, 2, 4)


def tokens(gamma: int, alpha: float = 0.7) -> float:
    """Tokens of a step of independent drafts."""
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def world(cost_of_a_token: float, *, rounds: int = 3, noise: float = 0.0) -> BatchCosts:
    """A machine whose steps take 1 until some tokens are verified together, then rise: memory is
    read once, and then it computes."""
    rng = random.Random(5)
    seconds = {
        (batch, gamma): [
            (max(1.0, cost_of_a_token * batch * (gamma + 1)) + 0.02 * gamma)
            * (1 + noise * rng.gauss(0, 1))
            for _ in range(rounds)
        ]
        for batch in BATCHES
        for gamma in GAMMAS
    }
    return BatchCosts({gamma: tokens(gamma) for gamma in GAMMAS}, seconds)


def test_more_sequences_draft_less() -> None:
    """Twenty tokens cost as much as one, here: four sequences of five; then ever less pays."""
    schedule = plan_batches(world(1 / 20))
    assert schedule.batches[0] == 1
    assert list(schedule.gammas) == sorted(schedule.gammas, reverse=True)
    assert [schedule.gamma(batch) for batch in BATCHES] == [4, 4, 4, 2, 1, 0]


def test_every_batch_gets_its_best_where_that_falls() -> None:
    costs = world(1 / 20)
    schedule = plan_batches(costs)
    for batch in BATCHES:
        rates = {gamma: costs.tokens_per_s(batch, gamma) for gamma in GAMMAS}
        assert rates[schedule.gamma(batch)] == max(rates.values())


def test_the_change_is_where_the_other_becomes_faster() -> None:
    """Between the measured batches 4 and 8 the lines cross."""
    costs = world(1 / 20)
    schedule = plan_batches(costs)
    [change] = [batch for batch in schedule.batches if 4 < batch <= 8]
    for batch in range(4, 9):
        other_is_no_slower = costs.tokens_per_s(batch, 2) >= costs.tokens_per_s(batch, 4)
        assert other_is_no_slower == (batch >= change)
    assert change < 8


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_that_falls_is_faster(seed: int) -> None:
    """A single round says nothing about noise: the best of all that do not rise."""
    rng = random.Random(seed)
    batches = (1, 2, 4)
    seconds = {(b, g): [rng.uniform(0.5, 4.0)] for b in batches for g in GAMMAS}
    costs = BatchCosts({gamma: tokens(gamma) for gamma in GAMMAS}, seconds)
    schedule = plan_batches(costs)

    def worth(gammas: tuple[int, ...]) -> float:
        return prod(costs.tokens_per_s(b, g) for b, g in zip(batches, gammas, strict=True))

    falling = [g for g in itertools.product(GAMMAS, repeat=3) if list(g) == sorted(g)[::-1]]
    ours = tuple(schedule.gamma(batch) for batch in batches)
    assert ours in falling
    assert worth(ours) == pytest.approx(max(map(worth, falling)))


def two_gammas(at_one: list[list[float]], at_two: list[list[float]]) -> BatchCosts:
    """Seconds of the gammas 1 and 4 at the batches 1 and 2."""
    seconds = {(1, 1): at_one[0], (1, 4): at_one[1], (2, 1): at_two[0], (2, 4): at_two[1]}
    return BatchCosts({1: 2.0, 4: 3.0}, seconds)


def test_it_rises_where_the_rounds_agree() -> None:
    costs = two_gammas(
        [[1.0, 1.02, 0.99], [2.0, 2.01, 1.99]], [[2.0, 2.02, 1.98], [2.0, 2.01, 2.0]]
    )
    assert plan_batches(costs) == BatchSchedule((1, 2), (1, 4))


def test_it_does_not_rise_in_noise() -> None:
    """The same medians, and rounds that differ by more than what there is to gain."""
    costs = two_gammas([[1.0, 4.0, 0.3], [2.0, 2.0, 2.0]], [[2.0, 8.0, 0.7], [2.0, 2.0, 2.0]])
    schedule = plan_batches(costs)
    assert len(schedule.gammas) == 1


def test_noise_of_a_percent_leaves_a_schedule_that_falls() -> None:
    schedule = plan_batches(world(1 / 20, rounds=5, noise=0.01))
    assert list(schedule.gammas) == sorted(schedule.gammas, reverse=True)


def test_steps_between_measured_batches_are_on_a_line() -> None:
    costs = BatchCosts({1: 2.0}, {(1, 1): [1.0], (5, 1): [3.0]})
    assert costs.step_seconds(2, 1) == pytest.approx(1.5)
    assert costs.tokens_per_s(5, 1) == pytest.approx(5 * 2.0 / 3.0)
