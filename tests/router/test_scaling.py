"""Demand in predicted seconds, and the replicas that it is worth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing_world import report

from router import predict
from router.scaling import UsualAnswer, wanted_replicas, work_seconds
from schemas import LoadReport, RoutingTable


def load(running: int, waiting: int = 0, each: int = 60, **more: object) -> LoadReport:
    told = {
        "running_by_method": {"draft": running} if running else {},
        "outstanding_tokens": each * (running + waiting),
        "requests": {str(i): each for i in range(running + waiting)},
    }
    return report("draft", running, waiting, **told | more)


LONG = 1e6
"""Usual tokens that bound nothing."""


def test_an_answer_on_a_replica_of_one_place_takes_its_decode_seconds(table: RoutingTable) -> None:
    # 60 tokens at 2.5 a step of 15 ms, as the made-up world has it
    assert work_seconds(table, load(1), 1, LONG) == pytest.approx(60 / 2.5 * 0.015, rel=0.1)
    slow = load(1, mean_batch=1.0, recent_step_seconds={"draft": 0.03})
    assert work_seconds(table, slow, 1, LONG) == pytest.approx(60 / 2.5 * 0.03, rel=0.1)


def test_work_is_not_requests(table: RoutingTable) -> None:
    assert work_seconds(table, load(0), 8, LONG) == 0.0
    few_long, many_short = load(2, each=400), load(8, each=10)
    assert work_seconds(table, few_long, 8, LONG) > 9 * work_seconds(table, many_short, 8, LONG)
    both, half = load(4, 4), load(4)
    assert work_seconds(table, both, 8, LONG) > 1.9 * work_seconds(table, half, 8, LONG)


def test_requests_are_as_much_work_wherever_they_run(table: RoutingTable) -> None:
    together, alone = load(8), load(1)
    assert work_seconds(table, together, 8, LONG) == pytest.approx(
        8 * work_seconds(table, alone, 8, LONG)
    )


def test_a_request_counts_as_the_usual_answer_at_most(table: RoutingTable) -> None:
    usual = UsualAnswer(table)
    for _ in range(500):
        usual.saw(100)
    assert usual.tokens == pytest.approx(100, abs=1)
    may, does = load(3, each=4000), load(3, each=100)
    assert work_seconds(table, may, 8, usual.tokens) == pytest.approx(
        work_seconds(table, does, 8, LONG), rel=0.02
    )


def test_methods_that_share_a_batch_are_counted_once(table: RoutingTable) -> None:
    """Every method's recent steps are the shared ones, which their mixture makes as long as they
    are expected to be."""
    running = {"naive": 4, "draft": 4}
    methods = tuple(running)
    together = load(8, methods=methods, running_by_method=running, mean_batch=8.0)
    numbers = {table.methods.index(name): 4.0 for name in running}
    prompt = sum(table.provenance["prompt_tokens"]) / len(table.provenance["prompt_tokens"])
    times = predict.StepTimes(table, prompt + predict.emitted_output(table, -1) / 2.0)
    mixed = times.mixed(numbers, 8.0)
    measured = together.model_copy(update={"recent_step_seconds": dict.fromkeys(running, mixed)})
    assert work_seconds(table, measured, 8, LONG) == pytest.approx(
        work_seconds(table, together, 8, LONG)
    )


def test_an_unknown_method_says_nothing(table: RoutingTable) -> None:
    unknown = load(1, methods=("new",), running_by_method={"new": 1})
    assert work_seconds(table, unknown, 8, LONG) == 0.0


@pytest.mark.parametrize(
    ("work", "requests", "queued", "wanted"),
    [
        (0.0, 0, 0, 0),
        (3.9, 4, 0, 1),
        (4.0, 4, 0, 1),
        (4.1, 4, 0, 2),
        (4.0, 4, 4, 2),
        (8.0, 1, 1, 2),
        (8.0, 8, 8, 4),
        (0.0, 0, 3, 3),
    ],
)
def test_replicas_that_the_work_is_worth(work, requests, queued, wanted):
    assert wanted_replicas(work, requests, queued, 4.0) == wanted


@given(
    st.floats(0, 1e4),
    st.integers(1, 1000),
    st.integers(0, 1000),
    st.floats(0.1, 100),
    st.floats(1, 9),
)
def test_more_work_never_wants_fewer(work, requests, queued, target, factor):
    less = wanted_replicas(work, requests, queued, target)
    assert wanted_replicas(work * factor, requests, queued, target) >= less
    assert wanted_replicas(work, requests, queued, target * factor) <= less
