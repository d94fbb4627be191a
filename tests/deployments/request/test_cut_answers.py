"""What answers teach that never end: their clients leave, their deadlines pass, their methods fail.

The ingress's parts are the real ones, in simulated time.
"""

import asyncio

import pytest
from observations import load, request
from simulated_ingress import Simulated, asked

from deployments.metrics import Metrics
from deployments.request import circuits as breakers
from deployments.request.calls import Call, Calls, DeadlineError
from deployments.request.circuits import Circuits
from deployments.request.in_flight import InFlight
from deployments.request.progress import AVERAGED_STEPS, Progress
from ops.common.simulated_time import run_simulated
from schemas import DecodeChunk, Grammar, LoadReport, RoutingTable, SamplingParams

LEAVES, LATE = {"leaves": 1.0}, {"deadline_seconds": 1.0}


@pytest.fixture
def first_failure(monkeypatch):
    """Let one failure open a circuit."""
    monkeypatch.setattr(breakers, "CONSECUTIVE_FAILURES", 1)


@pytest.mark.parametrize(
    ("slower", "wishes"),
    [(20.0, LEAVES), (20.0, LEAVES | {"whole": True}), (20.0, LATE), (4.0, LATE)],
)
def test_prompts_leave_a_method_that_has_become_slow(fitted, slower, wishes):
    """Its clients leave, or its answers miss their deadlines."""
    service = Simulated(fitted)
    asked(service, 30, whole=wishes.get("whole", False))
    service.slower["draft"] = slower
    assert sum(how != "whole" for _, how in asked(service, 150, **wishes)) <= 15


@pytest.mark.parametrize("step", [0, 5])
@pytest.mark.parametrize(
    ("wishes", "prompts", "most"), [(LEAVES, 150, 15), ({"deadline_seconds": 2.0}, 100, 20)]
)
def test_prompts_leave_a_method_that_hangs(fitted, step, wishes, prompts, most):
    """Its replica still reports the step time from before. The trials of the circuit breaker find
    it hanging still."""
    ends = asked(Simulated(fitted, hung={"draft": step}), prompts, **wishes)
    assert sum(how != "whole" for _, how in ends) <= most


@pytest.mark.usefixtures("first_failure")
def test_a_prompt_that_nobody_can_draft_disables_no_method(fitted):
    """Its client sets the deadline just above the prediction, and it takes twice the steps."""
    service = Simulated(fitted)
    [(_, how)] = asked(service, deadline_seconds=0.42, accepted=0.4)
    assert (how, service.answerer.circuits.resting()) == ("504", frozenset())


def test_deadlines_that_no_method_can_keep_disable_none(fitted):
    service = Simulated(fitted)
    assert {how for _, how in asked(service, 50, deadline_seconds=0.001)} == {"504"}
    assert asked(service) == [("draft", "whole")]


@pytest.mark.parametrize("whole", [False, True])
def test_deadlines_that_are_tight_disable_no_healthy_method(fitted, whole):
    """Half of the answers are a little later than predicted."""
    service = Simulated(fitted)
    asked(service, 150, deadline_seconds=0.4, whole=whole)
    assert not service.answerer.circuits.resting()


def test_a_method_that_fails_in_the_middle_costs_what_was_lost(fitted):
    service = Simulated(fitted, slower={"draft": 20.0}, dying={"draft": 8})
    assert asked(service) == [("draft", "whole")]
    learned = service.state.table
    assert learned.live.loss[learned.methods.index("draft")] > 1.0
    assert learned.live.answers[0] == 1.0, "the whole answer counts too"


def test_a_client_that_reads_slowly_and_leaves_does_not_make_its_method_look_slow(fitted):
    service = Simulated(fitted)
    assert {how for _, how in asked(service, 30, leaves=1.0, reads=0.2)} == {"left"}
    learned = service.state.table
    draft = learned.methods.index("draft")
    assert learned.live.step_ratio[draft] == pytest.approx(1.0, abs=0.05)
    assert learned.live.steps[0, draft] > 0.0, "what was accepted counts"


@pytest.mark.parametrize(
    ("slower", "fields"), [(1.0, {"reads": 0.2}), (5.0, {"choices": 8}), (5.0, {})]
)
@pytest.mark.usefixtures("first_failure")
def test_a_deadline_counts_against_a_method_that_made_it_late(fitted, slower, fields):
    """Slow readers are late themselves, and answers to one prompt make each other late."""
    service = Simulated(fitted, slower={"draft": slower})
    [(_, how)] = asked(service, deadline_seconds=0.7, **fields)
    assert how == "504"
    assert service.answerer.circuits.resting() == (set() if fields else {"draft"})


REQUEST = request("a", "draft", 100, prompt_token_ids=(1, 2), expected_tokens=100)


def report(**fields: object) -> LoadReport:
    return load(**{"methods": ("draft",), "free_slots": 0} | fields)


class Reports:
    """The part of a `FeedbackLink` that calls read."""

    def __init__(self, table: RoutingTable, *loads: LoadReport) -> None:
        self.table, self.loads = table, loads


@pytest.mark.parametrize(
    ("ends", "fields", "others", "disabled"),
    [
        (False, {}, 0, True),
        (True, {}, 0, False),
        (False, {"waiting": 1}, 0, False),
        (False, {"running": 30, "running_by_method": {"draft": 30}}, 0, False),
        (False, {}, 30, False),
    ],
)
@pytest.mark.usefixtures("first_failure")
def test_a_deadline_counts_against_a_method_that_was_working(
    fitted, ends, fields, others, disabled
):
    """Not after the answer's end, while requests wait where Serve may place it, in a large batch,
    or if others' prompts may have been read before its own."""

    async def stream(*_: object):
        reason = "stop" if ends else None
        yield DecodeChunk(request_id="a", text="x", token_ids=(1,), finish_reason=reason)
        await asyncio.Event().wait()

    async def resting() -> bool:
        state = Reports(fitted, report(replica="r", **fields), report(replica="s", **fields))
        circuits = Circuits(["draft"], Metrics())
        in_flight = InFlight(lambda: state.loads)
        calls = Calls({"draft": stream}, state, circuits, in_flight)
        deadline = asyncio.get_running_loop().time() + 0.2
        for i in range(others):
            in_flight.begin(REQUEST.model_copy(update={"request_id": str(i)}))
        call = Call(calls, REQUEST, deadline, lambda *_: None, whole=False)
        await call.next()
        with pytest.raises(DeadlineError):
            await call.next()
        return "draft" in circuits.resting()

    assert run_simulated(resting()) == disabled


def test_a_reported_step_time_comes_with_the_batch_that_it_was_measured_in():
    """Sixteen short requests that have just come have not shared the last steps of two long
    ones."""
    loads = report(
        running=16,
        running_by_method={"draft": 16},
        mean_batch=2.0,
        mean_context=3000.0,
        recent_step_seconds={"draft": 0.1},
    )
    stats = Progress(REQUEST, began=0.0).cut(5.0, loads)
    assert stats is not None
    assert stats.context_length - stats.output_tokens / 2 == pytest.approx(3000.0, abs=1.0)
    assert (stats.mean_batch, stats.batch_by_method) == (2.0, {"draft": 2.0})
    assert stats.target_steps == 1 + AVERAGED_STEPS
    assert stats.decode_seconds == pytest.approx(1.0)


def test_what_a_cut_answer_waited_for_other_prompts_is_no_step_time():
    """Half of the time between its chunks the replica read prompts."""
    progress = Progress(REQUEST, began=0.0)
    for i in range(6):
        progress.saw(DecodeChunk(request_id="a", text="x", token_ids=(1,)), 0.2 * i)
    stats = progress.cut(1.0, report(recent_step_seconds={"draft": 0.1}))
    assert stats is not None
    assert (stats.target_steps, stats.decode_seconds) == (6, pytest.approx(1.0))
    assert stats.stalled_seconds == pytest.approx(0.5)


def test_attempts_that_were_cut_before_their_first_token_count_each():
    cut = [
        Progress(REQUEST.model_copy(update={"method": name}), began=0.0).cut(
            5.0, report(recent_step_seconds={name: 0.1})
        )
        for name in ("draft", "ngram")
    ]
    assert len({stats and stats.request_id for stats in cut}) == 2


@pytest.mark.parametrize("leaves", [None, 0.3])
@pytest.mark.parametrize(
    "fields", [{"max_draft_tokens": 0}, {"max_draft_tokens": 1}, {"predicted_token_ids": (1, 2)}]
)
def test_answers_with_drafts_of_their_own_teach_others_nothing(fitted, fields, leaves):
    """After two answers without drafts, everybody's prompts left the best method."""
    service = Simulated(fitted)
    asked(service, 20, accepted=0.4, leaves=leaves, **fields)
    assert asked(service) == [("draft", "whole")]
    assert service.state.table.live.answers[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ends", "counted"), [({}, 1.0), ({"ignore_eos": True}, 0.0), ({"min_tokens": 61}, 0.0)]
)
def test_only_answers_that_may_end_teach_how_long_answers_are(fitted, ends, counted):
    service = Simulated(fitted)
    asked(service, sampling=SamplingParams(max_tokens=128, **ends))
    live = service.state.table.live
    assert live.answers[0] == counted
    assert live.steps[0].sum() > 0.0


@pytest.mark.parametrize("leaves", [None, 0.3])
def test_answers_with_a_grammar_teach_others_little_of_acceptance(fitted, leaves):
    sampling = SamplingParams(max_tokens=128, grammar=Grammar(kind="json_object"))
    service = Simulated(fitted)
    asked(service, 20, accepted=2.0, leaves=leaves, sampling=sampling)
    gain = service.state.table.live.gain[0, fitted.methods.index("draft")]
    assert gain[3] > 0.3
    assert (gain[:3] < 0.6 * gain[3]).all()


@pytest.mark.parametrize("missing", [{}, {"problem": "superseded"}, {"age_seconds": 31.0}])
def test_nothing_is_explored_while_nothing_is_learned(fitted, missing):
    service = Simulated(fitted)
    for name, value in missing.items():
        setattr(service.state, name, value)
    methods = {method for method, _ in asked(service, 50)}
    assert (methods == {*fitted.methods}) == (not missing)
