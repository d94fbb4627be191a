"""What an ingress remembers between requests: conversations and what it has sent."""

import time

from hypothesis import given
from hypothesis import strategies as st

from deployments.conversation import Conversations
from deployments.in_flight import InFlight
from schemas import DecodeRequest, LoadReport, SamplingParams

USER, OTHER = {"role": "user", "content": "hi"}, {"role": "user", "content": "and now?"}


def assistant(text):
    return {"role": "assistant", "content": text}


def test_the_next_turn_finds_who_answered_the_last():
    known = Conversations()
    assert known.method([USER]) is None
    known.remember([USER], "hello", "ngram")
    assert known.method([USER, assistant("hello"), OTHER]) == "ngram"
    assert known.method([USER, assistant("something else"), OTHER]) is None
    known.remember([USER, assistant("hello"), OTHER], "fine", "naive")
    assert known.method([USER, assistant("hello"), OTHER, assistant("fine"), USER]) == "naive"


def test_a_client_may_trim_the_answer():
    known = Conversations()
    known.remember([USER], " hello\n", "ngram")
    assert known.method([USER, assistant("hello"), OTHER]) == "ngram"


@given(st.lists(st.text(max_size=3), max_size=30), st.integers(1, 5))
def test_memory_is_bounded_and_keeps_the_latest(texts, capacity):
    known = Conversations(capacity)
    for text in texts:
        known.remember([USER], text, f"method {text}")
    assert len(known) <= capacity
    if texts:
        latest = [USER, assistant(texts[-1]), OTHER]
        assert known.method(latest).strip() == f"method {texts[-1]}".strip()


def report(replica, methods, age=1.0, outstanding=0):
    return LoadReport(
        replica=replica,
        methods=methods,
        running=0,
        waiting=0,
        outstanding_tokens=outstanding,
        free_slots=1000,
        time=time.time() - age,
    )


def request(identity, method="a"):
    return DecodeRequest(
        request_id=identity,
        method=method,
        prompt_token_ids=(1,) * 10,
        sampling=SamplingParams(max_tokens=50),
    )


def test_what_was_sent_since_the_report_counts_on_the_idlest_replica():
    sent = InFlight()
    reports = [report("1", ("a",)), report("2", ("a",)), report("3", ("b",))]
    with sent.sent(request("x")), sent.sent(request("y")), sent.sent(request("z")):
        added = sent.added_to(reports)
        assert sorted(r.running for r in added) == [0, 1, 2]
        assert added[2].running == 0
        assert sum(r.outstanding_tokens for r in added) == 150
    assert sent.added_to(reports) == reports


def test_a_report_made_after_sending_knows_already():
    sent = InFlight()
    with sent.sent(request("x")):
        fresh = [report("1", ("a",), age=-1.0)]
        assert sent.added_to(fresh) == fresh
