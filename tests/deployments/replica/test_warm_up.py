"""A replica answers for itself before it is asked, and says how fast it is."""

from types import SimpleNamespace

import numpy as np
import pytest

from deployments.learning.feedback import Feedback
from deployments.replica.warm_up import TEXT, TOKENS, warm_up
from router import predict
from schemas import DecodeStats
from workers.engine import EngineBusyError


async def test_every_method_answers(engine, tiny_bundle):
    answers = await warm_up(engine, tiny_bundle.backend_tokenizer().encode(TEXT).ids)
    assert sorted(stats.method for stats in answers) == sorted(spec.name for spec in engine.methods)
    assert {stats.output_tokens for stats in answers} == {TOKENS}
    assert {stats.cached_prompt_tokens for stats in answers} == {0}, "prefills are measured too"
    assert all(stats.decode_seconds > 0.0 for stats in answers)
    assert engine.load().running == 0


async def test_an_engine_that_cannot_is_left_as_it_is(engine):
    class Full:
        methods = engine.methods

        async def generate(self, _):
            raise EngineBusyError("full")
            yield

    assert await warm_up(Full(), [1, 2, 3]) == []


async def test_of_three_answers_the_one_with_the_shortest_steps_counts():
    """Answers of other lengths have other seconds: a step's are compared."""
    seconds = {1: (10, 0.10), 2: (20, 0.60), 3: (5, 0.06)}

    class Disturbed:
        methods = (SimpleNamespace(name="naive"),)

        async def generate(self, request):
            steps, decode = seconds.get(int(request.request_id.rpartition("-")[2]), (1, 9.0))
            stats = DecodeStats(
                request_id=request.request_id,
                method="naive",
                temperature=0.0,
                prompt_tokens=3,
                output_tokens=TOKENS,
                context_length=3 + TOKENS,
                target_steps=steps + 1,
                decode_seconds=decode,
                finish_reason="length",
            )
            yield SimpleNamespace(stats=stats)

    [told] = await warm_up(Disturbed(), [1, 2, 3])
    assert told.request_id == "warm-up-naive-1"


async def test_what_it_took_retimes_the_table_and_says_nothing_of_acceptance(config):
    """Twice as long as measured for every method: it is another machine."""
    feedback = Feedback(config)
    before = feedback._adaptation.table
    steps, context = 10, 100
    answers = [
        DecodeStats(
            request_id=f"warm-up-{name}",
            method=name,
            temperature=0.0,
            prompt_tokens=context - TOKENS // 2,
            output_tokens=TOKENS,
            context_length=context + TOKENS // 2,
            target_steps=steps + 1,
            decode_seconds=2.0 * steps * predict.step_seconds(before, m, 1.0, context),
            finish_reason="length",
        )
        for m, name in enumerate(before.methods)
    ]
    await feedback.warmed_up("replica-1", answers)
    after = feedback._adaptation.table
    assert after.live_step_ratio == pytest.approx(np.full(len(before.methods), 2.0), rel=0.2)
    assert after.assignment == before.assignment
    for array in ("live_tokens", "live_steps", "live_output", "live_answers"):
        np.testing.assert_array_equal(getattr(after, array), getattr(before, array))
    await feedback.warmed_up("replica-1", answers)
    assert feedback._adaptation.table.version == after.version, "counted once"
