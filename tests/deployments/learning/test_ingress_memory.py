"""What an ingress remembers between requests: conversations and what it has sent."""

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.request.conversation import Conversations
from deployments.request.in_flight import InFlight
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


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=30), st.integers(1, 5))
def test_memory_is_bounded_and_keeps_the_latest(texts, capacity):
    known = Conversations(capacity)
    for text in texts:
        known.remember([USER], text, f"method {text}")
    assert len(known) <= capacity
    if texts:
        latest = [USER, assistant(texts[-1]), OTHER]
        assert known.method(latest).strip() == f"method {texts[-1]}".strip()


def report(replica, methods, outstanding=0, requests=None, waiting=0):
    """`requests`: tokens that each may still emit, the last `waiting` of them in the line."""
    requests = requests or {}
    running = len(requests) - waiting
    return LoadReport(
        replica=replica,
        methods=methods,
        running=running,
        waiting=waiting,
        running_by_method={methods[0]: running} if running else {},
        outstanding_tokens=outstanding + sum(requests.values()),
        requests=requests,
        free_slots=1000,
        time=0.0,
    )


def request(identity, method="a"):
    return DecodeRequest(
        request_id=identity,
        method=method,
        prompt_token_ids=(1,) * 10,
        sampling=SamplingParams(max_tokens=50),
    )


def test_what_was_sent_since_the_report_counts_on_the_idlest_replica():
    reports = [report("1", ("a",)), report("2", ("a",)), report("3", ("b",))]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")), flying.sent(request("y")), flying.sent(request("z")):
        added = flying.loads()
        assert sorted(r.running for r in added) == [0, 1, 2]
        assert added[2].running == 0
        assert sum(r.outstanding_tokens for r in added) == 150
    assert flying.loads() == reports


def test_a_report_that_lists_a_request_counts_it():
    reports = [report("1", ("a",), requests={"x": 40})]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        flying.placed("x", "1")
        assert flying.loads() == reports


def test_an_ended_request_is_taken_off_a_report_that_still_lists_it():
    busy = report("1", ("a",), requests={"x": 40, "y": 30, "z": 50}, waiting=1)
    reports = [busy]
    flying = InFlight(lambda: reports)
    for name in ("x", "z"):
        with flying.sent(request(name)):
            flying.placed(name, "1")
    [load] = flying.loads()
    assert (load.running, load.waiting, load.outstanding_tokens) == (1, 0, 30)
    assert load.running_by_method == {"a": 1}
    reports[0] = report("1", ("a",), requests={"y": 10})
    assert flying.loads() == reports


def test_a_replica_whose_only_answer_has_just_ended_is_idle():
    reports = [report("1", ("a",), requests={"x": 40})]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        flying.placed("x", "1")
        flying.ended("x")  # its client may take its time to read it
        [load] = flying.loads()
        assert (load.running, load.outstanding_tokens) == (0, 0)
        assert load.running_by_method == {}


def test_what_has_ended_on_its_replica_is_not_added_while_a_client_reads():
    reports = [report("1", ("a",), requests={"x": 40})]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        flying.placed("x", "1")
        flying.loads()
        reports[0] = report("1", ("a",))
        assert flying.loads() == reports


def test_what_has_a_replica_counts_there_even_if_another_is_idler():
    reports = [report("1", ("a",), outstanding=500), report("2", ("a",))]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        flying.placed("x", "1")
        assert [r.outstanding_tokens for r in flying.loads()] == [550, 0]
        assert flying.sent_tokens({"1", "2"}) == {"1": 50}


def test_what_no_replica_has_accepted_is_in_no_report():
    reports = [report("1", ("a",)), report("2", ("a",))]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        flying.placed("x", "1")
        assert [load.outstanding_tokens for load in flying.loads()] == [50, 0]
        flying.placed("x", "2")  # the first one was full
        assert [load.outstanding_tokens for load in flying.loads()] == [0, 50]
        reports[1] = report("2", ("a",), requests={"x": 50})
        assert flying.loads() == reports


def test_where_some_wait_the_next_one_waits_too():
    reports = [report("1", ("a",)).model_copy(update={"running": 8, "waiting": 2})]
    flying = InFlight(lambda: reports)
    with flying.sent(request("x")):
        [load] = flying.loads()
        assert (load.running, load.waiting) == (8, 3)
