"""What a fault's run says, from requests as their clients saw them."""

import pytest

from ops.load.chaos.clients import Request
from ops.load.chaos.figures import Run, late_above, row

NOTHING = (frozenset(), frozenset())


def answered(due, *pieces, ended, name=None):
    return Request(due, status=200, id=name, pieces=list(pieces), done=True, ended=ended)


def run(requests, injected=10.0, recovered=15.0, counted=NOTHING):
    return row(Run("replica", "eagle3", injected, recovered, requests, counted))


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (answered(0.0, 1.0, ended=2.0), "answered"),
        (
            Request(0.0, status=200, pieces=[1.0], error="answer_broken_off", ended=2.0),
            "broken_off",
        ),
        (Request(0.0, status=429, retry_after=True, error="429", ended=2.0), "refused"),
        (Request(0.0, status=503, error="503", ended=2.0), "lost"),
        (Request(0.0, status=500, error="500", ended=2.0), "lost"),
        (Request(0.0, status=200, error="ReadError", ended=2.0), "lost"),
        (Request(0.0, error="ConnectError", ended=2.0), "lost"),
    ],
)
def test_outcomes(request_, outcome):
    assert request_.outcome == outcome


def test_only_what_met_the_fault_counts():
    broken = Request(9.0, status=200, pieces=[9.5], error="answer_broken_off", ended=10.5)
    lost = Request(11.0, error="ConnectError", ended=11.25)
    found = run([answered(0.0, 0.5, ended=1.0), broken, lost, answered(12.0, 12.5, ended=13.0)])
    assert (found["requests_before"], found["answered_before"]) == (1, 1)
    assert found["requests"] == 3
    assert [found[name] for name in ("answered", "lost", "broken_off", "refused")] == [1, 1, 1, 0]
    assert found["errors"] == {"answer_broken_off": 1, "ConnectError": 1}
    assert found["service_recovered_s"] == 5.0
    assert found["clients_recovered_s"] == 1.25
    assert [one["due"] for one in found["timeline"]] == [-10.0, -1.0, 1.0, 2.0]


def test_late_is_what_the_quiet_span_never_was():
    calm = answered(0.0, 0.5, 2.0, ended=2.25)
    assert late_above([calm]) == 2 * 1.5 + 1.0
    assert late_above([]) == 1.0
    found = run([calm, answered(11.0, 16.0, ended=16.5), answered(11.0, 11.5, 14.0, ended=18.0)])
    assert found["late"] == 1
    assert found["longest_silence_s"] == 5.0
    assert found["clients_recovered_s"] == 6.0, "when the silence ended"


def test_a_silence_before_the_fault_is_not_the_faults():
    found = run([answered(0.0, 0.5, ended=1.0), answered(2.0, 9.0, 10.5, ended=11.0)])
    assert (found["requests"], found["late"], found["clients_recovered_s"]) == (1, 0, 0.0)
    assert found["longest_silence_s"] == 1.5


def test_a_fault_that_nobody_notices():
    found = run([answered(11.0, 11.5, ended=12.0)], recovered=None)
    assert found["clients_recovered_s"] == 0.0
    assert found["service_recovered_s"] is None


def test_what_was_learned_and_forgotten():
    requests = [answered(11.0, 11.5, ended=12.0, name=name) for name in "cde"]
    found = run(requests, counted=(frozenset("abc"), frozenset("bcd")))
    assert found["observations_acknowledged"] == 3
    assert found["acknowledged_lost"] == 1
    assert found["never_counted"] == 1
