"""Circuit breakers as functions of time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.request import circuits
from deployments.request.circuits import Circuit


@pytest.fixture(autouse=True, scope="module")
def fewer_answers():
    """Let three failures in a row, or half of six answers, open a circuit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuits, "CONSECUTIVE_FAILURES", 3)
        patch.setattr(circuits, "WINDOW_ANSWERS", 6)
        patch.setattr(circuits, "WINDOW_SECONDS", 10.0)
        yield


def answered(*answers: bool | None, at: float = 0.0, circuit: Circuit | None = None) -> Circuit:
    """After answers one by one, each sent and ended at `at`: True is a failure."""
    circuit = Circuit() if circuit is None else circuit
    for failed in answers:
        circuit.sent(at)
        circuit.ended(at, failed, at)
    return circuit


def test_failures_in_a_row_open_it_and_nothing_is_sent():
    circuit = answered(True, True)
    assert circuit.state(0.0) == "closed"
    answered(True, circuit=circuit)
    assert circuit.state(4.9) == "open"
    assert not circuit.admits(4.9)
    assert answered(True, True, False, True, True).opened is None, "not in a row"


def test_a_share_of_failures_opens_it_once_there_are_enough_answers():
    mixed = (True, False, True, False, True)
    assert answered(*mixed).opened is None
    assert answered(*mixed, False).opened == 0.0
    assert answered(False, True, False, False, True, False).opened is None
    assert answered(False, at=10.1, circuit=answered(*mixed)).opened is None, "the window is over"


def test_an_answer_without_a_verdict_counts_for_nothing():
    assert answered(True, None, True, None) == answered(True, True)


def test_only_the_window_counts_and_takes_room():
    circuit = Circuit()
    for number in range(10_000):
        answered(number % 5 == 0, at=number / 500, circuit=circuit)
    assert (len(circuit.answers), circuit.failures) == (5_000, 1_000)
    assert answered(True, True, at=20.0, circuit=circuit).opened is None
    assert answered(True, at=20.0, circuit=circuit).opened == 20.0


def test_a_row_of_failures_is_within_the_window():
    for later, opens in ((9.0, True), (10.0, False)):
        circuit = answered(True, True)
        assert (answered(True, at=later, circuit=circuit).opened == later) is opens


@pytest.mark.parametrize(
    ("failed", "states"),
    [(False, ["closed"] * 2), (True, ["open", "half_open"]), (None, ["half_open"] * 2)],
)
def test_the_trial_decides(failed, states):
    circuit = answered(True, True, True)
    circuit.sent(5.0)
    circuit.ended(5.0, failed, 6.0)
    assert [circuit.state(10.9), circuit.state(11.0)] == states
    assert circuit.admits(11.0), "without a verdict the next one tries"


@pytest.mark.parametrize("failed", [True, False, None])
def test_answers_from_before_it_opened_say_nothing(failed):
    circuit = answered(True, True, True, at=1.0)
    circuit.ended(0.5, failed, 2.0)
    assert (circuit.opened, circuit.trial) == (1.0, None)
    circuit.sent(6.0)
    circuit.ended(0.5, failed, 7.0)
    assert (circuit.opened, circuit.trial) == (1.0, 6.0)


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
        if circuit.admits(now):
            circuit.sent(now)
            under_way.append((now, failed))
        if len(under_way) >= together:
            circuit.ended(*under_way.pop(0), now)
    for since, verdict in under_way:
        circuit.ended(since, verdict, now)
    assert circuit.admits(now + circuits.PAUSE_SECONDS)
