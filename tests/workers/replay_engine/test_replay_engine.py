"""The replay engine: what was recorded comes back, in the time it takes when it is shared."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from recordings import PREFILL, STEP, decode_seconds, prompt_of, step_seconds, write_profile

from schemas import DecodeChunk, DecodeRequest, EngineConfig, SamplingParams
from workers.bundle import Bundle
from workers.engine import Engine, EngineBusyError, EngineRefusedError
from workers.loader import load_engine
from workers.methods import get_method
from workers.replay_engine.engine import ReplayEngine
from workers.replay_engine.recording import Recording
from workers.replay_engine.simulated_time import run_simulated

SPECS = [get_method(name).model_copy(update={"engine": "replay"}) for name in STEP]
STEPS = st.lists(st.lists(st.integers(20, 90), min_size=1, max_size=5), min_size=1, max_size=12)
property_test = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
PLAIN = [[30 + i] for i in range(21)]
"""One token a step, as plain decoding."""


@pytest.fixture(scope="module")
def tokenizer(tiny_bundle: Bundle) -> Any:
    return tiny_bundle.backend_tokenizer()


@pytest.fixture
def load(tmp_path: Path, tokenizer: Any) -> Callable[..., ReplayEngine]:
    """An engine over answers given by method; `naive/2` is one more prompt of naive's."""
    count = iter(range(10_000))

    def make(answers: dict, finish_reason: str = "length", **config: int) -> ReplayEngine:
        folder = tmp_path / str(next(count))
        write_profile(folder, answers, bundle="tiny@1", finish_reason=finish_reason)
        limits = EngineConfig(max_context=256, **config)
        return ReplayEngine(SPECS, Recording.load(folder), tokenizer, limits, "r1")

    return make


def request(method: str, i: int = 0, **sampling: object) -> DecodeRequest:
    return DecodeRequest(
        request_id=f"{method}-{i}",
        method=method,
        prompt_token_ids=prompt_of(i),
        sampling=SamplingParams(**sampling),
    )


async def answer(engine: Engine, asked: DecodeRequest) -> list[DecodeChunk]:
    return [chunk async for chunk in engine.generate(asked)]


def tokens(chunks: list[DecodeChunk]) -> list[int]:
    return [t for chunk in chunks for t in chunk.token_ids]


async def until(condition: Callable[[], bool]) -> None:
    """Simulated seconds pass until the condition holds, a hundred of them at most."""
    async with asyncio.timeout(100):
        while not condition():
            await asyncio.sleep(0.001)


@property_test
@example(steps=[[30], [31, 32, 33, 34]], limit=3, method="ngram")
@given(steps=STEPS, limit=st.integers(1, 60), method=st.sampled_from(list(STEP)))
def test_tokens_come_back_exactly_and_by_step(load, steps, limit, method):
    engine = load({method: steps})
    recorded = [t for step in steps for t in step]
    limit = min(limit, len(recorded))
    chunks = run_simulated(answer(engine, request(method, max_tokens=limit)))
    assert tokens(chunks) == recorded[:limit]
    expected = [t[: limit - sum(map(len, steps[:i]))] for i, t in enumerate(steps)]
    arrived = [list(chunk.token_ids) for chunk in chunks if chunk.token_ids]
    # alone on a replica nobody is behind, so no two steps come in one chunk
    assert arrived == [t for i, t in enumerate(expected) if sum(map(len, steps[:i])) < limit]
    flags = [f for chunk in chunks for f in chunk.drafted]
    assert flags == [i + 1 < len(s) for s in steps for i in range(len(s))][:limit]
    stats = chunks[-1].stats
    assert stats.output_tokens == limit
    assert stats.target_steps == len(arrived)
    assert chunks[-1].finish_reason == "length"


@property_test
@given(steps=STEPS)
def test_alone_an_answer_takes_its_recorded_seconds(load, steps):
    engine = load({"ngram": steps})
    limit = sum(map(len, steps))
    stats = run_simulated(answer(engine, request("ngram", max_tokens=limit)))[-1].stats
    assert stats.first_token_seconds == pytest.approx(PREFILL)
    assert stats.decode_seconds == pytest.approx(decode_seconds("ngram", steps))
    assert stats.total_seconds == pytest.approx(PREFILL + stats.decode_seconds)


def test_a_slowdown_multiplies_every_recorded_second(tmp_path, tiny_bundle):
    ours = f"{tiny_bundle.name}@{tiny_bundle.content_hash}"
    folder = write_profile(tmp_path / "profile", {"ngram": [[30], [31, 32], [33]]}, bundle=ours)
    engine = load_engine(SPECS, tiny_bundle, EngineConfig(replay=folder, replay_slowdown=7.0))
    stats = run_simulated(answer(engine, request("ngram", max_tokens=4)))[-1].stats
    assert stats.first_token_seconds == pytest.approx(7 * PREFILL)
    recorded = decode_seconds("ngram", [[30], [31, 32], [33]])
    assert stats.decode_seconds == pytest.approx(7 * recorded)


@property_test
@given(batch=st.integers(1, 6))
def test_a_batch_slows_its_steps_as_recorded(load, batch):
    engine = load({f"naive/{i}": PLAIN for i in range(batch)}, max_batch=8)

    async def together() -> list[list[DecodeChunk]]:
        asked = (answer(engine, request("naive", i, max_tokens=21)) for i in range(batch))
        return await asyncio.gather(*asked)

    answers = run_simulated(together())
    assert all(tokens(a) == [t for s in PLAIN for t in s] for a in answers)
    # all prompts fit into one round's chunk, after which everybody steps together
    for position, chunks in enumerate(answers):
        stats = chunks[-1].stats
        assert stats.mean_batch == pytest.approx(batch)
        assert stats.batch_by_method.keys() == {stats.method}
        assert stats.first_token_seconds == pytest.approx(PREFILL * (position + 1))
        others = PREFILL * (batch - position - 1)
        assert stats.decode_seconds == pytest.approx(others + decode_seconds("naive", PLAIN, batch))


def test_a_shared_step_takes_what_its_sequences_methods_take_on_the_mean(load):
    engine = load({"naive": PLAIN, "ngram": PLAIN})

    async def together() -> list[list[DecodeChunk]]:
        return await asyncio.gather(
            answer(engine, request("naive", 0, max_tokens=21)),
            answer(engine, request("ngram", 1, max_tokens=21)),
        )

    _, slow = run_simulated(together())
    own = [decode_seconds(method, PLAIN, 2) for method in ("naive", "ngram")]
    assert slow[-1].stats.decode_seconds == pytest.approx(sum(own) / 2)
    assert slow[-1].stats.batch_by_method == {"naive": 1.0, "ngram": 1.0}
    assert set(engine.load().recent_step_seconds) == {"naive", "ngram"}


def test_the_load_is_truthful_and_cancelling_frees_the_place(load):
    engine = load({f"naive/{i}": PLAIN for i in range(4)}, max_batch=2, max_waiting=1)

    async def busy() -> None:
        first = engine.generate(request("naive", 0, max_tokens=21))
        others = [
            asyncio.create_task(answer(engine, request("naive", i, max_tokens=21))) for i in (1, 2)
        ]
        async with aclosing(first):
            await anext(first)
            await until(lambda: engine.load().running == 2)
            load = engine.load()
            assert (load.running, load.waiting) == (2, 1)
            assert 2 * 21 < load.outstanding_tokens < 3 * 21
            assert load.free_slots == 0
            with pytest.raises(EngineBusyError, match="max_waiting is 1"):
                await answer(engine, request("naive", 3, max_tokens=21))
        # the waiting one takes the place before two more steps have passed
        started = asyncio.get_running_loop().time()
        await until(lambda: engine.load().waiting == 0)
        waited = asyncio.get_running_loop().time() - started
        assert waited < 2 * step_seconds("naive", 2, 40)
        assert tokens(await answer(engine, request("naive", 3, max_tokens=21)))
        await asyncio.gather(*others)
        load = engine.load()
        assert (load.running, load.waiting, load.outstanding_tokens) == (0, 0, 0)
        assert load.free_slots == 2 * 256

    run_simulated(busy())


def test_closing_ends_everybody_as_cancelled(load):
    engine = load({"naive": PLAIN})

    async def closed() -> list[DecodeChunk]:
        running = asyncio.create_task(answer(engine, request("naive", max_tokens=21)))
        await until(lambda: 0 < engine.load().outstanding_tokens < 10)
        engine.close()
        engine.close()
        chunks = await running
        with pytest.raises(EngineBusyError, match="shut down"):
            await answer(engine, request("naive", max_tokens=21))
        return chunks

    chunks = run_simulated(closed())
    assert chunks[-1].finish_reason == "cancelled"
    assert 11 < len(tokens(chunks)) < 21
    assert not engine.load().healthy


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request("ngram", max_tokens=5), "ngram at temperature 0.0 has no recorded answer"),
        (request("naive", 7, max_tokens=5), "no recorded answer"),
        (request("naive", max_tokens=5, temperature=0.5), "temperature 0.5 has no recorded"),
        (request("naive", max_tokens=22), "cut off after 21 tokens: ask for at most 21"),
        (request("naive", max_tokens=5, stop=("x",)), "^stop: replay gives back recorded"),
        (request("naive", max_tokens=5, logprobs=1), "^logprobs: "),
        (request("fuzzy", max_tokens=5), "^method: 'fuzzy' is not served here"),
        (request("naive", max_tokens=250), "^max_tokens: .* ask for at most 246"),
    ],
)
def test_what_was_not_recorded_is_refused(load, asked, said):
    engine = load({"naive": PLAIN})
    with pytest.raises(EngineRefusedError, match=said):
        run_simulated(answer(engine, asked))
    assert engine.load().waiting == 0


def test_an_answer_that_ended_by_itself_may_be_given_more_room(load):
    engine = load({"naive": PLAIN}, finish_reason="stop")
    chunks = run_simulated(answer(engine, request("naive", max_tokens=100)))
    assert chunks[-1].finish_reason == "stop"
    cut = run_simulated(answer(engine, request("naive", max_tokens=20)))
    assert cut[-1].finish_reason == "length"


def test_an_open_ended_answer_ends_where_the_recorded_one_was_cut(load):
    engine = load({"naive": PLAIN}, finish_reason="length")
    asked = request("naive", max_tokens=100).model_copy(update={"open_ended": True})
    chunks = run_simulated(answer(engine, asked))
    assert chunks[-1].finish_reason == "length"
    assert sum(len(chunk.token_ids) for chunk in chunks) == 21


def test_a_fault_ends_the_answers_with_an_error(load, monkeypatch):
    engine = load({"naive": PLAIN})

    def broken(*_: object) -> float:
        raise RuntimeError("broken")

    monkeypatch.setattr("workers.replay_engine.step_times.StepTimes.seconds", broken)
    chunks = run_simulated(answer(engine, request("naive", max_tokens=21)))
    assert chunks[-1].finish_reason == "error"
    assert chunks[-1].error == "the engine has failed"
    assert not engine.load().healthy
