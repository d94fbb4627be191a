"""What an ingress has under way, in addition to what its replicas report."""

import numpy as np
import pytest
from observations import Flying, load, request, tracked
from served import small_table

from schemas import EncoderInfo


def report(replica, methods, outstanding=0, requests=None, waiting=0, **more):
    """`requests`: tokens that each may still emit, the last `waiting` of them in the line."""
    requests = requests or {}
    running = len(requests) - waiting
    return load(
        replica,
        methods=methods,
        running=running,
        waiting=waiting,
        running_by_method={methods[0]: running} if running else {},
        outstanding_tokens=outstanding + sum(requests.values()),
        requests=requests,
        **more,
    )


def loads_of(flying):
    """The reports with what is in flight."""
    loads = flying.present()
    return [loads.report(i) for i in range(len(loads.reports))]


def answered(flying, name, replica):
    """A request's way, to its last chunk."""
    with tracked(flying, request(name)):
        flying.place(name, replica, accepted=True)
        flying.ended(name)


def test_what_was_sent_since_the_report_counts_on_the_idlest_replica():
    flying = Flying(report("1", ("a",)), report("2", ("a",)), report("3", ("b",)))
    with (
        tracked(flying, request("x")),
        tracked(flying, request("y")),
        tracked(flying, request("z")),
    ):
        added = loads_of(flying)
        assert sorted(r.running for r in added) == [0, 1, 2]
        assert added[2].running == 0
        assert sum(r.outstanding_tokens for r in added) == 150
    assert loads_of(flying) == flying.reports


def test_a_report_that_lists_a_request_counts_it():
    flying = Flying(report("1", ("a",), requests={"x": 40}))
    with tracked(flying, request("x")):
        flying.place("x", "1")
        assert loads_of(flying) == flying.reports


def test_an_ended_request_is_taken_off_a_report_that_still_lists_it():
    busy = report("1", ("a",), requests={"x": 40, "y": 30, "z": 50}, waiting=1)
    flying = Flying(busy)
    for name in ("x", "z"):
        answered(flying, name, "1")
    [load] = loads_of(flying)
    assert (load.running, load.waiting, load.outstanding_tokens) == (1, 0, 30)
    assert load.running_by_method == {"a": 1}
    flying.reports[0] = report("1", ("a",), requests={"y": 10})
    assert loads_of(flying) == flying.reports


def test_an_ended_request_is_taken_off_once_if_reports_have_just_come():
    flying = Flying(report("1", ("a",)))
    with tracked(flying, request("x")):
        flying.place("x", "1", accepted=True)
        flying.reports[0] = report("1", ("a",), requests={"x": 40, "y": 30})
        flying.ended("x")
        [load] = loads_of(flying)
        assert (load.running, load.outstanding_tokens) == (1, 30)


def test_what_has_ended_on_its_replica_is_not_added_while_a_client_reads():
    flying = Flying(report("1", ("a",), requests={"x": 40}))
    with tracked(flying, request("x")):
        flying.place("x", "1")
        loads_of(flying)
        flying.reports[0] = report("1", ("a",))
        assert loads_of(flying) == flying.reports


def test_what_has_a_replica_counts_there_even_if_another_is_idler():
    flying = Flying(report("1", ("a",), outstanding=500), report("2", ("a",)))
    with tracked(flying, request("x")):
        flying.place("x", "1")
        assert [r.outstanding_tokens for r in loads_of(flying)] == [550, 0]
        # a replica without a report counts with what was sent to it
        assert flying.ranked(["1", "new", "2"], request("y")) == ["new", "2", "1"]


def test_what_no_replica_has_accepted_is_in_no_report():
    flying = Flying(report("1", ("a",)), report("2", ("a",)))
    with tracked(flying, request("x")):
        flying.place("x", "1")
        assert [load.outstanding_tokens for load in loads_of(flying)] == [50, 0]
        flying.place("x", "2")  # the first one was full
        assert [load.outstanding_tokens for load in loads_of(flying)] == [0, 50]
        flying.reports[1] = report("2", ("a",), requests={"x": 50})
        assert loads_of(flying) == flying.reports


def test_where_some_wait_the_next_one_waits_too():
    flying = Flying(report("1", ("a",)).model_copy(update={"running": 8, "waiting": 2}))
    with tracked(flying, request("x")):
        [load] = loads_of(flying)
        assert (load.running, load.waiting) == (8, 3)


def test_a_request_counts_by_the_tokens_that_are_expected():
    """Clients allow far more than answers have."""
    flying = Flying(report("1", ("a",)))
    with tracked(flying, request("x", tokens=2048, expected_tokens=60)):
        assert [load.outstanding_tokens for load in loads_of(flying)] == [60]


@pytest.mark.parametrize(("fits", "first"), [(True, "fast"), (False, "slow")])
def test_a_replica_whose_steps_take_longer_has_more_work(fits, first):
    """As much as the table lets predict: without a table both have the same."""
    table = small_table(
        EncoderInfo(name="none", dimension=2, sha256="0" * 64), np.eye(2), ("naive",)
    )
    busy = {"running": 1, "running_by_method": {"naive": 1}, "mean_batch": 1.0}
    reports = [
        load(
            name,
            methods=("naive",),
            outstanding_tokens=90,
            recent_step_seconds={"naive": step},
            **busy,
        )
        for name, step in (("slow", 0.006), ("fast", 0.002))
    ]
    flying = Flying(*reports, table=table if fits else None)
    assert flying.ranked(["slow", "fast"], request("x", "naive"))[0] == first


def test_an_ended_request_gives_its_place_back():
    full = report("1", ("a",), requests={"x": 40}, free_slots=0, slots_each=200)
    paged = report("2", ("a",), requests={"y": 40}, free_slots=5)
    flying = Flying(full, paged)
    answered(flying, "x", "1")
    answered(flying, "y", "2")
    assert [load.free_slots for load in loads_of(flying)] == [200, 65]


def test_a_request_takes_the_place_that_its_replica_keeps_for_each():
    rows, paged = report("1", ("a",), slots_each=400), report("2", ("b",))
    flying = Flying(rows, paged)
    with tracked(flying, request("x")), tracked(flying, request("y", "b")):
        assert [load.free_slots for load in loads_of(flying)] == [600, 940]


def test_what_was_given_up_runs_on_until_its_replica_says_otherwise():
    """Cancelled, late or lost: the replica may not know of it yet."""
    flying = Flying(report("1", ("a",), requests={"x": 40}))
    with tracked(flying, request("x")):
        flying.place("x", "1", accepted=True)
    assert loads_of(flying) == flying.reports


def test_a_request_that_failed_over_has_ended_where_it_ended_only():
    flying = Flying(
        report("1", ("a",), requests={"x": 40}), report("2", ("b",), requests={"x": 40})
    )
    with tracked(flying, request("x")):
        flying.place("x", "1", accepted=True)  # it dies, and is still listed
    with tracked(flying, request("x", "b")):
        flying.place("x", "2", accepted=True)
        flying.ended("x")
        assert [load.running for load in loads_of(flying)] == [1, 0]


def test_an_answer_that_no_report_ever_listed_ends_while_its_client_reads():
    """It began and ended between two reports: those after the third know that it is not there."""
    flying = Flying(report("1", ("a",)))
    with tracked(flying, request("x")):
        flying.place("x", "1")
        seen = []
        for time in (0.0, 0.0, 1.0, 2.0):
            flying.reports[0] = report("1", ("a",), time=time)
            seen.append(loads_of(flying)[0].running)
        assert seen == [1, 1, 1, 1], "nobody has accepted it yet"
        flying.place("x", "1", accepted=True)
        seen = []
        for time in (2.0, 2.0, 3.0, 3.0, 4.0):
            flying.reports[0] = report("1", ("a",), time=time)
            seen.append(loads_of(flying)[0].running)
        assert seen == [1, 1, 1, 1, 0]
