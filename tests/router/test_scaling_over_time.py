"""The replicas that arrivals are given over time: the pure function in a simulation without Ray."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from router.scaling import wanted_replicas

PLACES = 8
"""Answers that a replica decodes at once."""
MOST = 10
LULL_SECONDS = 30
"""Fewer replicas are there once fewer were wanted for so long."""


def replicas_over_time(
    arrivals: Sequence[int], answer_seconds: int, target_seconds: float
) -> list[int]:
    """Replicas at the end of each second, of which arrivals[i] requests come in second i.

    Answers take their seconds in a place of a replica, first come first served.
    """
    replicas, lull, history = 1, 0, []
    running: list[int] = []
    waiting = 0
    for come in arrivals:
        running = [left - 1 for left in running if left > 1]
        waiting += come
        started = min(waiting, max(0, replicas * PLACES - len(running)))
        running += [answer_seconds] * started
        waiting -= started
        work = sum(running) / PLACES
        wanted = wanted_replicas(work, len(running), waiting, target_seconds)
        wanted = min(MOST, max(1, wanted))
        lull = lull + 1 if wanted < replicas else 0
        if wanted > replicas or lull == LULL_SECONDS:
            replicas, lull = wanted, 0
        history.append(replicas)
    return history


def changes(history: Sequence[int]) -> int:
    return sum(after != before for before, after in pairwise(history))


@given(st.lists(st.integers(0, 50), max_size=200), st.integers(1, 40), st.floats(0.1, 40))
def test_replicas_stay_within_bounds(arrivals, answer_seconds, target):
    assert all(1 <= count <= MOST for count in replicas_over_time(arrivals, answer_seconds, target))


@given(st.integers(0, 6), st.integers(0, 6), st.integers(2, 40), st.floats(0.25, 4))
def test_more_demand_never_gets_fewer(a: int, more: int, answer_seconds: int, share: float) -> None:
    target = share * answer_seconds
    less = replicas_over_time([a] * 300, answer_seconds, target)
    larger = replicas_over_time([a + more] * 300, answer_seconds, target)
    assert max(larger) >= max(less)
    assert sum(larger) >= sum(less)


@given(st.integers(0, 8), st.integers(2, 40), st.floats(0.1, 0.5))
def test_constant_demand_gets_a_constant_number(rate, answer_seconds, share):
    history = replicas_over_time([rate] * 600, answer_seconds, share * answer_seconds)
    settled = history[300:]
    assert changes(settled) == 0


@given(st.integers(1, 8), st.integers(2, 40), st.floats(0.1, 0.5))
def test_replicas_go_when_nobody_comes(rate: int, answer_seconds: int, share: float) -> None:
    arrivals = [rate] * 100 + [0] * (400 + 2 * LULL_SECONDS)
    assert replicas_over_time(arrivals, answer_seconds, share * answer_seconds)[-1] == 1
