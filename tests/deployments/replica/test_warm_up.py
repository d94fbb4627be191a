"""A replica answers for itself before it is asked, and says how fast it is."""

from types import SimpleNamespace

import numpy as np
import pytest
from observations import observation

from deployments.learning.feedback import Feedback
from deployments.replica.warm_up import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    PROSE,
    TEXT,
    TOGETHER_TOKENS,
    TOKENS,
    warm_up,
)
from router import predict
from workers.engine import EngineBusyError


async def test_every_method_answers(engine, tiny_bundle):
    answers = await warm_up(engine, tiny_bundle.backend_tokenizer().encode(TEXT).ids)
    assert sorted(stats.method for stats in answers) == sorted(spec.name for spec in engine.methods)
    assert {stats.output_tokens for stats in answers} == {TOKENS}
    assert {stats.cached_prompt_tokens for stats in answers} == {0}, "prefills are measured too"
    assert all(stats.decode_seconds > 0.0 for stats in answers)
    assert engine.load().running == 0


async def test_every_method_answers_several_times_at_once_too(engine, tiny_bundle):
    encode = tiny_bundle.backend_tokenizer().encode
    answers = await warm_up(engine, encode(TEXT).ids, encode(PROSE).ids, rows=4)
    for spec in engine.methods:
        alone, together = (stats for stats in answers if stats.method == spec.name)
        assert alone.mean_batch == 1.0
        assert together.mean_batch > 2.0
        assert together.batch_by_method == {spec.name: together.mean_batch}
        assert together.output_tokens == TOGETHER_TOKENS
    assert len({stats.request_id for stats in answers}) == len(answers)
    assert {stats.cached_prompt_tokens for stats in answers} == {0}


async def test_nobody_who_asks_waits_for_full_batches():
    asked = Disturbed(0.01, 0.01, 0.01, 0.01, running=1)
    assert len(await warm_up(asked, [1, 2, 3], [4, 5, 6], rows=8)) == 1
    assert asked.rounds == LEAST_ROUNDS


async def test_full_batches_that_a_request_interrupts_say_nothing(engine, tiny_bundle):
    """The first ones were cold, and methods whose turn had not come would look the faster."""
    encode = tiny_bundle.backend_tokenizer().encode

    class Asked:
        """Somebody asks after the first full batch."""

        methods = engine.methods

        def __init__(self):
            self.together = 0

        def load(self):
            return SimpleNamespace(running=int(self.together > 0))

        async def generate(self, request):
            self.together += request.sampling.max_tokens == TOGETHER_TOKENS
            async for chunk in engine.generate(request):
                yield chunk

    answers = await warm_up(Asked(), encode(TEXT).ids, encode(PROSE).ids, rows=4)
    assert {stats.mean_batch for stats in answers} == {1.0}


async def test_an_engine_that_cannot_is_left_as_it_is(engine):
    class Full:
        methods = engine.methods

        async def generate(self, _):
            raise EngineBusyError("full")
            yield

    assert await warm_up(Full(), [1, 2, 3]) == []


class Disturbed:
    """An engine that takes `seconds` a step in each round's answer, and 9 in others."""

    methods = (SimpleNamespace(name="naive"),)

    def __init__(self, *seconds, running=0):
        self._seconds, self._running = seconds, running
        self.rounds = 0

    def load(self):
        return SimpleNamespace(running=self._running)

    async def generate(self, request):
        turn = int(request.request_id.rpartition("-")[2])
        assert turn == self.rounds
        self.rounds += 1
        steps = 5 * turn + 5  # answers of other lengths have other seconds: a step's are compared
        seconds = self._seconds[turn] if turn < len(self._seconds) else 9.0
        measured = {"target_steps": steps + 1, "decode_seconds": steps * seconds}
        yield SimpleNamespace(stats=observation(request.request_id, **measured).stats)


async def test_the_answer_with_the_shortest_steps_counts_and_never_the_first():
    engine = Disturbed(0.001, 0.011, 0.03, 0.010)
    [told] = await warm_up(engine, [1, 2, 3])
    assert told.request_id == "warm-up-naive-3"
    assert engine.rounds == LEAST_ROUNDS


async def test_a_disturbed_replica_goes_on_until_two_answers_agree():
    engine = Disturbed(0.05, 0.04, 0.03, 0.02, 0.010, 0.04, 0.0105)
    [told] = await warm_up(engine, [1, 2, 3])
    assert (told.request_id, engine.rounds) == ("warm-up-naive-4", 7)


async def test_warming_up_ends_on_a_busy_machine_and_makes_way_for_requests():
    disturbed = [0.04 / 2**turn for turn in range(20)]
    busy, asked = Disturbed(*disturbed), Disturbed(*disturbed, running=1)
    assert len(await warm_up(busy, [1, 2, 3])) == len(await warm_up(asked, [1, 2, 3])) == 1
    assert (busy.rounds, asked.rounds) == (MOST_ROUNDS, LEAST_ROUNDS)


async def test_what_it_took_retimes_the_table_and_says_nothing_of_acceptance(config):
    """Twice as long as measured for every method: it is another machine."""
    feedback = Feedback(config)
    before = feedback._adaptation.table
    steps, context = 10, 100
    measured = {
        "prompt_tokens": context - TOKENS // 2,
        "output_tokens": TOKENS,
        "context_length": context + TOKENS // 2,
        "target_steps": steps + 1,
    }
    answers = []
    for m, name in enumerate(before.methods):
        seconds = 2.0 * steps * predict.step_seconds(before, m, 1.0, context)
        made = observation(f"warm-up-{name}", name, **measured, decode_seconds=seconds)
        answers.append(made.stats)
    await feedback.warmed_up("replica-1", answers)
    after = feedback._adaptation.table
    assert after.live.step_ratio == pytest.approx(np.full(len(before.methods), 2.0), rel=0.2)
    assert after.assignment == before.assignment
    for array in ("tokens", "steps", "output", "answers"):
        np.testing.assert_array_equal(getattr(after.live, array), getattr(before.live, array))
    await feedback.warmed_up("replica-1", answers)
    assert feedback._adaptation.table.version == after.version, "counted once"
