"""Circuit breakers as pure functions of time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.request import circuits
from deployments.request.circuits import PARTS, Circuit, admits, circuit_state, ended, sent


@pytest.fixture(autouse=True, scope="module")
def fewer_answers():
    """Let three failures in a row, or half of six answers, open a circuit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuits, "CONSECUTIVE_FAILURES", 3)
        patch.setattr(circuits, "WINDOW_ANSWERS", 6)
        patch.setattr(circuits, "WINDOW_SECONDS", 10.0)
        yield


def answered(circuit: Circuit, *answers: bool | None, at: float = 0.0) -> Circuit:
    """After answers one by one, each sent and ended at `at`: True is a failure."""
    for failed in answers:
        circuit = ended(sent(circuit, at), at, failed, at)
    return circuit


def test_failures_in_a_row_open_it_and_nothing_is_sent():
    closed = answered(Circuit(), True, True)
    assert circuit_state(closed, 0.0) == "closed"
    broken = answered(closed, True)
    assert circuit_state(broken, 4.9) == "open"
    assert not admits(broken, 4.9)
    assert answered(Circuit(), True, True, False, True, True).opened is None, "not in a row"


def test_a_share_of_failures_opens_it_once_there_are_enough_answers():
    mixed = answered(Circuit(), True, False, True, False, True)
    assert mixed.opened is None
    assert answered(mixed, False).opened == 0.0
    assert answered(Circuit(), False, True, False, False, True, False).opened is None
    assert answered(mixed, False, at=10.1).opened is None, "the window is over"


def test_an_answer_without_a_verdict_counts_for_nothing():
    assert answered(Circuit(), True, None, True, None) == answered(Circuit(), True, True)


def test_many_answers_take_no_more_room_than_few():
    circuit = Circuit()
    for number in range(10_000):
        circuit = answered(circuit, number % 5 == 0, at=number / 500)
    assert len(circuit.outcomes) <= PARTS + 1
    assert sum(part.answers for part in circuit.outcomes) == pytest.approx(5_000, rel=1 / PARTS)
    assert answered(circuit, True, False, True, False, True, False, at=20.0).opened is None
    assert answered(circuit, True, True, True, at=20.0).opened == 20.0


def test_a_row_of_failures_spans_parts_of_the_window():
    apart = circuits.WINDOW_SECONDS / PARTS
    circuit = answered(Circuit(), *[False] * 20, True, True)
    assert answered(circuit, True, at=2 * apart).opened == 2 * apart
    assert answered(answered(circuit, False, at=apart), True, at=2 * apart).opened is None
    assert answered(circuit, True, at=circuits.WINDOW_SECONDS).opened is None


def test_after_the_pause_one_request_is_tried():
    broken = answered(Circuit(), True, True, True)
    assert circuit_state(broken, 5.0) == "half_open"
    assert admits(broken, 5.0)
    trying = sent(broken, 5.0)
    assert not admits(trying, 5.1)
    assert not admits(trying, 500.0)


def test_the_trial_decides():
    trying = sent(answered(Circuit(), True, True, True), 5.0)
    assert ended(trying, 5.0, False, 6.0) == Circuit()
    again = ended(trying, 5.0, True, 6.0)
    assert circuit_state(again, 10.9) == "open"
    assert circuit_state(again, 11.0) == "half_open"
    assert admits(ended(trying, 5.0, None, 6.0), 6.0), "without a verdict the next one tries"


@pytest.mark.parametrize("failed", [True, False, None])
def test_answers_from_before_it_opened_say_nothing(failed):
    broken = answered(Circuit(), True, True, True, at=1.0)
    assert ended(broken, 0.5, failed, 2.0) == broken
    trying = sent(broken, 6.0)
    assert ended(trying, 0.5, failed, 7.0) == trying


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from([True, False, None])), max_size=60),
    st.integers(1, 4),
)
def test_it_never_stays_shut(history, together):
    """Whatever has happened: once every request has ended and the pause is over, one is let in."""
    circuit, now, under_way = Circuit(), 0.0, []
    for step, failed in history:
        now += step
        if admits(circuit, now):
            circuit = sent(circuit, now)
            under_way.append((now, failed))
        if len(under_way) >= together:
            since, verdict = under_way.pop(0)
            circuit = ended(circuit, since, verdict, now)
    for since, verdict in under_way:
        circuit = ended(circuit, since, verdict, now)
    assert admits(circuit, now + circuits.PAUSE_SECONDS)
    assert len(circuit.outcomes) <= len(history)
