"""Which replica holds a prompt's beginning, and what that is worth against its load."""

import numpy as np
import observations
import pytest
from hypothesis import given
from hypothesis import strategies as st
from observations import Flying, tracked
from served import small_table

from deployments.request.prefixes import Prefixes
from router.load import Prospect
from router.prompt import Features
from router.replica_loads import ReplicaLoads
from schemas import EncoderInfo
from schemas.prefixes import prefix_hashes, prefix_lengths

PROMPT = tuple(range(300))
HASHED = prefix_lengths(len(PROMPT))[-1]
ENCODER = EncoderInfo(name="none", dimension=2, sha256="0" * 64)
TABLE = small_table(ENCODER, np.eye(2), ("naive",)).model_copy(
    update={"prefill_seconds": np.asarray([[0.0, 0.0008]])}
)
"""Reading a prompt's token takes as long as one token of an answer in a full batch."""


def load(replica, **fields):
    return observations.load(replica, **{"prefixes": b""} | fields)


def asking(name, prompt=PROMPT, scope=""):
    return observations.request(name, "naive", prompt_token_ids=prompt, scope=scope)


def holding(replica, prompt=PROMPT, scope="", **fields):
    return load(replica, prefixes=b"".join(prefix_hashes(prompt, scope)), **fields)


def first_of(flying, request, names=("1", "2", "3")):
    with tracked(flying, request):
        return flying.ranked(list(names), request)[0]


def held_by(flying, prompt=PROMPT, scope=""):
    return flying.held(prompt, scope).tolist()


@pytest.mark.parametrize("outstanding", [HASHED - 1, HASHED + 1])
def test_a_prefix_counts_by_the_time_that_it_takes_to_read(outstanding):
    flying = Flying(load("1"), holding("2", outstanding_tokens=outstanding), load("3"), table=TABLE)
    assert (first_of(flying, asking("x")) == "2") == (outstanding < HASHED)


def test_a_replica_without_a_cache_holds_nothing():
    flying = Flying(load("1"), load("2", prefixes=None), table=TABLE)
    with tracked(flying, asking("x")):
        flying.place("x", "2", accepted=True)
        assert held_by(flying) == [0, 0]
        flying.place("x", "1", accepted=True)
        assert held_by(flying) == [HASHED, 0]


tokens = st.lists(st.integers(0, 50_000), max_size=600)


@given(tokens, tokens, tokens)
def test_the_longest_shared_prefix_is_found(shared, left, right):
    """At the last length with a hash that both prompts share, by reports and by what was sent."""
    left, right = [*shared, *left], [*shared, *right]
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    length = [0, *(one for one in prefix_lengths(len(right)) if one <= same)][-1]
    found = Prefixes()
    found.reported([holding("1", left, "a"), holding("2", left, "b"), load("3"), load("4")])
    found.sent("4", "x", prefix_hashes(left, "a"))
    assert found.held(prefix_hashes(right, "a")).tolist() == [length, 0, 0, length]


def test_without_reports_not_every_prompt_is_remembered(monkeypatch):
    monkeypatch.setattr("deployments.request.in_flight.REMEMBERED", 64)
    flying = Flying(load("1"), table=TABLE)
    for number in range(74):
        with tracked(flying, asking(str(number), (number, *PROMPT))):
            flying.place(str(number), "1", accepted=True)
    [first], [last] = (held_by(flying, (number, *PROMPT)) for number in (0, 64))
    assert first == 0 < last


def test_another_scopes_prefix_is_not_held():
    flying = Flying(load("1"), holding("2", scope="theirs"), load("3"), table=TABLE)
    assert first_of(flying, asking("x")) == "1"
    assert first_of(flying, asking("y", scope="theirs")) == "2"


def test_what_was_sent_is_held_until_reports_can_tell():
    flying = Flying(load("1"), load("2"), table=TABLE)
    with tracked(flying, asking("x")):
        flying.place("x", "1")
        flying.place("x", "2")  # the first one was full
        flying.place("x", "2", accepted=True)
        for time in range(5):
            flying.reports[:] = load("1", time=time), load("2", time=time)
            assert held_by(flying) == [0, HASHED], "it runs"
        flying.ended("x")
    seen = []
    for time in (5, 5, 6, 7, 8):
        flying.reports[:] = load("1", time=time), load("2", time=time)
        seen.append(held_by(flying)[1])
    assert seen == [HASHED, HASHED, HASHED, 0, 0]


def test_two_requests_of_one_beginning_are_forgotten_apart():
    flying = Flying(load("1"), load("2"), table=TABLE)
    with tracked(flying, asking("x")):
        flying.place("x", "1", accepted=True)
        with tracked(flying, asking("y")):
            flying.place("y", "1", accepted=True)
            flying.place("y", "2", accepted=True)
        flying.reports[:] = [load("1", time=1.0)]  # the second one is gone
        assert held_by(flying) == [HASHED]
    flying.reports[:] = [load("1", time=2.0), load("2", time=2.0)]
    assert held_by(flying) == [HASHED, 0]


def test_the_holder_is_asked_where_only_two_of_many_are_compared():
    """With many ingresses a request takes the better of two replicas."""
    everyone = [load(str(i), running=8, free_slots=0) for i in range(20)]
    flying = Flying(*everyone, holding("holder", running=8, free_slots=0), table=TABLE)
    names = [report.replica for report in flying.reports]
    assert first_of(flying, asking("x"), names) == "holder"
    assert first_of(flying, asking("y", PROMPT[::-1]), names) in names[:2]


def test_the_prediction_is_that_of_the_replica_that_holds_it():
    loads = ReplicaLoads([load("1"), load("2")], TABLE)
    ask = Features(len(PROMPT), 50, cluster=0)
    held = Features(len(PROMPT), 50, cluster=0, held=np.asarray([0.0, HASHED]))
    without, with_it = (Prospect(TABLE, one).under(loads)["naive"] for one in (ask, held))
    assert without.first - with_it.first == pytest.approx(HASHED * 0.0008)
    assert without.per_token == with_it.per_token
