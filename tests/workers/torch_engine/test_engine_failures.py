"""Engines that stall, and targets whose arithmetic fails."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from decoding import decode, reference, until

from workers.bundle import Bundle
from workers.torch_engine.engine import TorchEngine


async def test_a_step_that_does_not_end_makes_the_engine_unhealthy(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_engine(["naive"], byte_bundle, stall_seconds=1e-3)
    forward, reached, free = engine._target.forward, threading.Event(), threading.Event()

    def held(proposals: list, captures: object) -> object:
        reached.set()
        assert free.wait(60)
        return forward(proposals, captures)

    monkeypatch.setattr(engine._target, "forward", held)
    job = asyncio.create_task(decode(engine, "naive", [1, 2], max_tokens=10))
    await asyncio.to_thread(reached.wait, 60)
    await until(lambda: not engine.load().healthy)
    patient = engine._config.model_copy(update={"stall_seconds": 1e6})
    monkeypatch.setattr(engine, "_config", patient)
    assert engine.load().healthy
    free.set()
    assert (await job).tokens == reference(byte_bundle, [1, 2], 10)
    monkeypatch.setattr(engine, "_config", patient.model_copy(update={"stall_seconds": 1e-9}))
    await until(lambda: engine.load().healthy)  # an idle engine does not stall


def spoil(engine, monkeypatch: pytest.MonkeyPatch, prompt: int) -> None:
    """From now on the target's logits are NaN for sequences that begin with `prompt`."""
    forward = engine._target.forward

    def spoilt(proposals: list, captures: object) -> object:
        output = forward(proposals, captures)
        for proposal in proposals:
            if proposal.sequence.tokens[0] == prompt:
                output.logits[proposal.row, 3] = torch.nan
        return output

    monkeypatch.setattr(engine._target, "forward", spoilt)


async def test_logits_that_are_no_numbers_end_their_sequence_alone(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_engine(["naive", "ngram"], byte_bundle)
    spoil(engine, monkeypatch, prompt=7)
    good, bad, sampled = await asyncio.gather(
        decode(engine, "ngram", [1, 2], max_tokens=30),
        decode(engine, "ngram", [7, 2], max_tokens=30),
        decode(engine, "naive", [7, 3], max_tokens=30, temperature=0.7),
    )
    assert good.tokens == reference(byte_bundle, [1, 2], 30)
    for answer in (bad, sampled):
        assert answer.finish == "error"
        assert "logits are NaN" in (answer.error or "")
    assert engine.load().healthy


async def test_an_engine_that_says_nothing_else_has_failed(load_engine, byte_bundle, monkeypatch):
    engine = load_engine(["naive"], byte_bundle)
    spoil(engine, monkeypatch, prompt=7)
    for _ in range(2):
        assert (await decode(engine, "naive", [7], max_tokens=5)).finish == "error"
    assert (await decode(engine, "naive", [1], max_tokens=5)).finish == "length"
    assert engine.load().healthy
    for _ in range(3):
        assert engine.load().healthy
        assert (await decode(engine, "naive", [7], max_tokens=5)).finish == "error"
    assert not engine.load().healthy


def fails(engine, monkeypatch: pytest.MonkeyPatch, when: Callable[[int], bool]) -> None:
    """From now on the target's forward fails if `when` holds for the first token it reads."""
    forward = engine._target.model.forward

    def failing(layout: Any, pool: object, captures: object = ()) -> object:
        if when(int(layout.tokens[0])):
            raise RuntimeError("broken on purpose")
        return forward(layout, pool, captures)

    monkeypatch.setattr(engine._target.model, "forward", failing)


async def test_an_engine_that_fails_every_request_alone_has_failed(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is alone in its step, where nothing tells whose failure it is."""
    engine = load_engine(["naive"], byte_bundle)
    fails(engine, monkeypatch, lambda _: True)
    for _ in range(3):
        assert engine.load().healthy
        assert (await decode(engine, "naive", [7], max_tokens=5)).finish == "error"
    await until(lambda: not engine.load().healthy)


async def test_clients_cannot_fail_the_engine_with_requests_that_fail(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing else is asked, and every row is kept for its prefix."""
    engine = load_engine(["naive"], byte_bundle, max_batch=2, kv_slots=512)
    for prompt in ([1, 2], [3, 4]):
        assert (await decode(engine, "naive", prompt, max_tokens=40)).finish == "length"
    fails(engine, monkeypatch, lambda token: token == 7)
    for _ in range(8):
        assert (await decode(engine, "naive", [7, 8], max_tokens=5)).finish == "error"
    for prompt in ([1, 2], [5]):
        found = await decode(engine, "naive", prompt, max_tokens=10)
        assert found.tokens == reference(byte_bundle, prompt, 10)
    assert engine.load().healthy


def _drafters(engine: TorchEngine) -> list[object]:
    return list(engine._scheduler._rows._drafters)


@pytest.mark.parametrize("tail", [20, 80])
@pytest.mark.parametrize("chunk", [32, 256])  # read before the last chunk, or whole
@pytest.mark.parametrize("method", ["naive", "draft_verify", "eagle3"])
async def test_what_was_no_number_is_not_left_to_those_who_come_later(
    load_engine, byte_bundle: Bundle, method: str, chunk: int, tail: int
) -> None:
    """Its keys and values are NaN. Slots behind a sequence's end are masked, which does not help
    against what is no number, where a longer one beside it makes them looked at."""
    engine = load_engine([method], byte_bundle, prefill_chunk=chunk)
    embedding = engine._target.model.embedding
    with torch.inference_mode():
        sound = embedding[7].clone()
        embedding[7] = torch.nan
        bad = await decode(engine, method, [*range(100, 140), *[7] * tail], max_tokens=5)
        assert "logits are NaN" in (bad.error or "")
        embedding[7] = sound
    short, long = [1, 2], [3, *range(20, 90)]
    answers = await asyncio.gather(
        *(decode(engine, method, prompt, max_tokens=10) for prompt in (short, long))
    )
    for answer, prompt in zip(answers, (short, long), strict=True):
        assert answer.tokens == reference(byte_bundle, prompt, 10)
    for pool in (engine._target.pool, *(d.pool for d in _drafters(engine) if hasattr(d, "pool"))):
        assert not pool.data.isnan().any()


def test_a_forward_that_fails_for_all_is_tried_for_each_alone(make_rig, byte_bundle, monkeypatch):
    """One of three sequences fails alone too, with its draft and without it."""
    rig = make_rig(byte_bundle, ["ngram", "eagle3"])
    prompts = [[1, 2] * 6, [3, 1, 4, 1, 5, 3, 1, 4], [5, 6] * 4]
    methods = ["ngram", "eagle3", "ngram"]
    asked = zip(methods, prompts, strict=True)
    running = [rig.submit(method, prompt, max_tokens=30) for method, prompt in asked]
    for _ in range(4):
        rig.round()
    target, own, broken = rig.engine._target, rig.engine._target.forward, running[2]

    def forward(proposals: list, captures: object) -> object:
        if any(p.sequence is broken for p in proposals):
            raise RuntimeError("broken on purpose")
        return own(proposals, captures)

    monkeypatch.setattr(target, "forward", forward)
    first, second, bad = rig.finish(*running)
    assert "broken on purpose" in bad.error
    assert not bad.request_fault
    for answer, prompt in zip((first, second), prompts, strict=False):
        assert answer.tokens == reference(byte_bundle, prompt, 30)
    assert rig.scheduler.healthy
    assert rig.engine.load().drafter_failures == {}


def test_a_draft_that_no_forward_takes_is_dropped(make_rig, byte_bundle, monkeypatch):
    rig = make_rig(byte_bundle, ["ngram"])
    prompt = [1, 2] * 20
    [sequence] = [rig.submit("ngram", prompt, max_tokens=30, predicted=[9, 9, 9, 9])]
    target, own = rig.engine._target, rig.engine._target.forward

    def forward(proposals: list, captures: object) -> object:
        if any(len(p) for p in proposals):
            raise RuntimeError("broken on purpose")
        return own(proposals, captures)

    monkeypatch.setattr(target, "forward", forward)
    [answer] = rig.finish(sequence)
    assert answer.tokens == reference(byte_bundle, prompt, 30)
    assert rig.engine.load().drafter_failures == {"ngram": 1}
