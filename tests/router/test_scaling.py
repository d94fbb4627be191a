"""Demand in predicted seconds, and the replicas that it is worth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.scaling import wanted_replicas, work_seconds
from schemas import LoadReport, RoutingTable


def load(running: int, waiting: int = 0, each: int = 60, **more: object) -> LoadReport:
    values = {
        "replica": "a",
        "methods": ("draft",),
        "running": running,
        "waiting": waiting,
        "running_by_method": {"draft": running} if running else {},
        "outstanding_tokens": each * (running + waiting),
        "free_slots": 1000,
        "time": 0.0,
    }
    return LoadReport.model_validate(values | more)


def test_an_answer_alone_takes_its_decode_seconds(table: RoutingTable) -> None:
    # 60 tokens at 2.5 a step of 15 ms, as the made-up world has it
    assert work_seconds(table, load(1)) == pytest.approx(60 / 2.5 * 0.015, rel=0.1)
    measured = load(1, recent_step_seconds={"draft": 0.03})
    assert work_seconds(table, measured) == pytest.approx(60 / 2.5 * 0.03, rel=0.1)


def test_work_is_not_requests(table: RoutingTable) -> None:
    assert work_seconds(table, load(0)) == 0.0
    steps = {"recent_step_seconds": {"draft": 0.02}}
    few_long, many_short = load(2, each=400, **steps), load(8, each=10, **steps)
    assert work_seconds(table, few_long) > 10 * work_seconds(table, many_short)
    assert work_seconds(table, load(4, 4, **steps)) > 1.9 * work_seconds(table, load(4, **steps))


def test_an_unknown_method_says_nothing(table: RoutingTable) -> None:
    assert work_seconds(table, load(1, methods=("new",), running_by_method={"new": 1})) == 0.0


@pytest.mark.parametrize(
    ("work", "requests", "queued", "spare", "wanted"),
    [
        (0.0, 0, 0, 0, 0),
        (0.0, 0, 0, 1, 1),
        (3.9, 4, 0, 0, 1),
        (4.0, 4, 0, 0, 1),
        (4.1, 4, 0, 0, 2),
        (4.0, 4, 4, 0, 2),
        (8.0, 1, 1, 1, 5),
        (0.0, 0, 3, 0, 3),
    ],
)
def test_replicas_that_the_work_is_worth(
    work: float, requests: float, queued: float, spare: int, wanted: int
) -> None:
    assert wanted_replicas(work, requests, queued, 4.0, spare) == wanted


@given(
    st.floats(0, 1e4),
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.floats(0.1, 100),
    st.floats(1, 9),
)
def test_more_work_never_wants_fewer(
    work: float, requests: int, queued: int, target: float, factor: float
) -> None:
    less = wanted_replicas(work, requests, queued, target, 0)
    assert wanted_replicas(work * factor, requests, queued, target, 0) >= less
    assert wanted_replicas(work, requests, queued, target * factor, 0) <= less
    assert wanted_replicas(work, requests, queued, target, 2) == less + 2
