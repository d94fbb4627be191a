"""A replica answers for itself before it is asked, and is measured while nobody asks."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from observations import observation

from deployments.learning.feedback import Feedback
from deployments.replica.warm_up import (
    PROSE,
    TEXT,
    TOGETHER_TOKENS,
    TOKENS,
    clients_load,
    measure,
    warm_up,
)
from router import predict
from schemas import DecodeRequest, SamplingParams
from workers.engine import EngineBusyError


async def test_every_method_answers_once_before_the_first_request(engine, tiny_bundle):
    asked = list[DecodeRequest]()

    class Watched:
        methods = engine.methods

        load = staticmethod(engine.load)

        def generate(self, request):
            asked.append(request)
            return engine.generate(request)

    text = tiny_bundle.backend_tokenizer().encode(TEXT).ids
    await warm_up(Watched(), text)
    assert [request.method for request in asked] == [spec.name for spec in engine.methods]
    assert engine.load().running == 0
    await measure(Watched(), text, text, 4, set())
    assert len({request.request_id for request in asked}) == len(asked)
    assert len({request.scope for request in asked}) == len(asked), "none drafts from another's"


async def test_every_method_is_measured_alone_and_several_times_at_once(engine, tiny_bundle):
    encode = tiny_bundle.backend_tokenizer().encode
    answers = await measure(engine, encode(TEXT).ids, encode(PROSE).ids, 4, set())
    assert len(answers) == 2 * len(engine.methods)
    for spec in engine.methods:
        alone, together = (stats for stats in answers if stats.method == spec.name)
        assert (alone.mean_batch, alone.output_tokens) == (1.0, TOKENS)
        assert together.mean_batch > 2.0
        assert together.batch_by_method == {spec.name: together.mean_batch}
        assert together.output_tokens == TOGETHER_TOKENS
    assert len({stats.request_id for stats in answers}) == len(answers)
    assert {stats.cached_prompt_tokens for stats in answers} == {0}, "prefills are measured too"
    assert all(stats.decode_seconds > 0.0 for stats in answers)
    assert engine.load().running == 0


async def test_a_measurement_makes_way_for_a_request(engine, tiny_bundle):
    """A request comes in the middle of the first measurement and again in the first full batch.
    Both are cancelled and begun anew."""
    encode = tiny_bundle.backend_tokenizer().encode
    method = engine.methods[0].name
    texts, stories = encode(TEXT).ids, encode(PROSE).ids
    cancelled, users, own = list[str](), list[asyncio.Task](), set[str]()
    reported = list[tuple[int, int]]()

    async def user(name):
        sampling = SamplingParams(max_tokens=200, ignore_eos=True)
        request = DecodeRequest(
            request_id=name, method=method, prompt_token_ids=tuple(texts), sampling=sampling
        )
        return [chunk async for chunk in engine.generate(request)][-1].stats

    class Asked:
        methods = engine.methods[:1]
        load = staticmethod(engine.load)

        async def generate(self, request):
            most = 2 if request.sampling.max_tokens == TOGETHER_TOKENS else 1
            try:
                async for chunk in engine.generate(request):
                    if not users:
                        load = engine.load()
                        reported.append((load.running, clients_load(load, own).running))
                    if len(users) < most:
                        users.append(asyncio.create_task(user(f"user-{len(users)}")))
                        await asyncio.sleep(3600.0)  # until the measurement is cancelled
                    yield chunk
            except asyncio.CancelledError:
                cancelled.append(request.request_id)
                raise

    answers = await measure(Asked(), texts, stories, 4, own)
    assert reported[0] == (1, 0), "routing does not count what makes way for requests"
    assert cancelled[0] == f"warm-up-{method}-alone-0-0"
    assert len(cancelled) > 1
    assert [stats.output_tokens for stats in await asyncio.gather(*users)] == [200, 200]
    alone, together = answers
    assert alone.mean_batch == 1.0
    assert together.batch_by_method == {method: together.mean_batch}


async def test_an_engine_that_cannot_is_left_as_it_is(engine):
    class Full:
        methods = engine.methods
        load = staticmethod(engine.load)

        async def generate(self, _):
            raise EngineBusyError("full")
            yield

    await warm_up(Full(), [1, 2, 3])
    assert await measure(Full(), [1, 2, 3], (), 1, set()) == []


async def test_beside_a_request_the_whole_load_is_reported(engine):
    load = engine.load().model_copy(
        update={"running": 2, "requests": {"warm-up-a-0-0": 3, "a client's": 5}}
    )
    assert clients_load(load, {"warm-up-a-0-0"}) == load
    alone = load.model_copy(update={"running": 1, "requests": {"warm-up-a-0-0": 3}})
    assert clients_load(alone, {"warm-up-a-0-0"}).requests == {}
    assert clients_load(alone, set()) == alone


class Disturbed:
    """An engine that takes `seconds` a step in each round's answer."""

    methods = (SimpleNamespace(name="naive"),)

    def __init__(self, *seconds):
        self._seconds = seconds
        self.rounds = 0

    def load(self):
        return SimpleNamespace(requests={})

    async def generate(self, request):
        turn = int(request.request_id.split("-")[4])
        assert turn == self.rounds
        self.rounds += 1
        steps = 5 * turn + 5  # answers of other lengths have other seconds: a step's are compared
        measured = {"target_steps": steps + 1, "decode_seconds": steps * self._seconds[turn]}
        yield SimpleNamespace(stats=observation(request.request_id, **measured).stats)


async def test_the_answer_with_the_shortest_steps_counts():
    engine = Disturbed(0.04, 0.03, 0.02, 0.010, 0.04)
    [told] = await measure(engine, [1, 2, 3], (), 1, set())
    assert told.request_id == "warm-up-naive-alone-3-0"


async def test_what_it_took_retimes_the_table_and_says_nothing_of_acceptance(config):
    """Twice as long as measured for every method: it is another machine."""
    feedback = Feedback(config)
    before = feedback._learner.table
    steps, context = 10, 100
    measured = {
        "prompt_tokens": context - TOKENS // 2,
        "output_tokens": TOKENS,
        "context_length": context + TOKENS // 2,
        "target_steps": steps + 1,
    }
    answers = []
    for m, name in enumerate(before.methods):
        seconds = 2.0 * steps * predict.StepTimes(before, context).of(m, 1.0)
        made = observation(f"warm-up-{name}", name, **measured, decode_seconds=seconds)
        answers.append(made.stats)
    await feedback.warmed_up("replica-1", answers)
    after = feedback._learner.table
    assert after.live.step_ratio == pytest.approx(np.full(len(before.methods), 2.0), rel=0.2)
    assert after.assignment == before.assignment
    for array in ("gain", "steps", "output", "answers"):
        np.testing.assert_array_equal(getattr(after.live, array), getattr(before.live, array))
    await feedback.warmed_up("replica-1", answers)
    assert feedback._learner.table.version == after.version, "counted once"
