"""The environment alone puts an engine of tests in the place of ours."""

import asyncio
from contextlib import aclosing

import pytest
from decoding import decode, request
from fake_engine import TEXT, TOKENS_PER_STEP, FakeEngine
from served import fake_engines

from schemas import EngineConfig
from workers.engine import EngineBusyError, EngineRefusedError
from workers.loader import load_engine

PROMPT = range(1, 21)
STEP_SECONDS = 0.002
LIMITS = EngineConfig(max_context=256, max_batch=2, max_waiting=1)


@pytest.fixture
def engine(monkeypatch, tiny_bundle):
    for name, value in fake_engines(STEP_SECONDS).items():
        monkeypatch.setenv(name, value)
    engine = load_engine(["naive", "draft_verify"], tiny_bundle, LIMITS, "r")
    assert isinstance(engine, FakeEngine)
    yield engine
    engine.close()


@pytest.mark.parametrize("method", ["naive", "draft_verify"])
async def test_a_fake_answer_takes_its_time_and_tells_it(engine, method):
    first, second = [await decode(engine, method, PROMPT, max_tokens=26) for _ in range(2)]
    assert first.text == second.text
    assert first.text in TEXT * 3
    stats, steps = first.stats, 25 / TOKENS_PER_STEP[method]
    assert (first.finish, stats.output_tokens, stats.target_steps) == ("length", 26, 1 + steps)
    assert stats.decode_seconds >= steps * STEP_SECONDS
    assert stats.accepted_tokens == sum(first.drafted) == 25 - steps
    assert (stats.mean_batch, stats.batch_by_method) == (1.0, {method: 1.0})


async def test_a_fake_engine_has_so_many_places_and_cancelling_frees_one(engine):
    async with aclosing(engine.generate(request("naive", PROMPT, max_tokens=200))) as left:
        await anext(left)
        prompts = [range(2, 20), range(3, 20)]
        streams = [engine.generate(request("naive", ids, max_tokens=30)) for ids in prompts]
        others = [asyncio.create_task(anext(stream)) for stream in streams]
        await others[0]
        load = engine.load()
        assert (load.running, load.waiting) == (2, 1)
        assert 200 < load.outstanding_tokens < 260
        with pytest.raises(EngineBusyError):
            await decode(engine, "naive", PROMPT)
    await asyncio.wait_for(others[1], 60)


async def test_a_fake_engine_refuses_what_it_cannot_do(engine):
    for method, tokens in (("ngram", 1), ("naive", 237)):
        with pytest.raises(EngineRefusedError):
            await decode(engine, method, PROMPT, max_tokens=tokens)
    answer = asyncio.create_task(decode(engine, "naive", PROMPT, max_tokens=200))
    while not engine.load().running_by_method:
        await asyncio.sleep(STEP_SECONDS)
    engine.close()
    assert (await answer).finish == "cancelled"
    assert not engine.load().healthy
