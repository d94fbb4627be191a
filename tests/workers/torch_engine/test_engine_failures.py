"""Engines that stall, and targets whose arithmetic fails or gives no numbers."""

import asyncio
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from decoding import decode, reference, until
from scipy.stats import chi2_contingency

from workers.bundle import Bundle
from workers.torch_engine import sequence
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


def spoil(engine, monkeypatch: pytest.MonkeyPatch, prompt: int, said: float = torch.nan) -> None:
    """From now on the target's logits are `said` for sequences that begin with `prompt`."""
    forward = engine._target.forward

    def spoilt(proposals: list, captures: object) -> object:
        output = forward(proposals, captures)
        for proposal in proposals:
            if proposal.sequence.tokens[0] == prompt:
                output.logits[proposal.row, 3] = said
        return output

    monkeypatch.setattr(engine._target, "forward", spoilt)


@pytest.mark.parametrize("said", [torch.nan, torch.inf])
async def test_logits_that_are_no_numbers_end_their_sequence_alone(
    load_engine, byte_bundle, monkeypatch, said
):
    engine = load_engine(["naive", "ngram"], byte_bundle)
    spoil(engine, monkeypatch, 7, said)
    good, bad, sampled = await asyncio.gather(
        decode(engine, "ngram", [1, 2], max_tokens=30),
        decode(engine, "ngram", [7, 2], max_tokens=30),
        decode(engine, "naive", [7, 3], max_tokens=30, temperature=0.7),
    )
    assert good.tokens == reference(byte_bundle, [1, 2], 30)
    for answer in (bad, sampled):
        assert answer.finish == "error"
        assert "logits are NaN or infinite" in (answer.error or "")
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


@pytest.mark.parametrize("chunk", [32, 256])  # read before the last chunk, or whole
@pytest.mark.parametrize("method", ["naive", "draft_verify", "eagle3"])
async def test_what_was_no_number_is_not_left_to_those_who_come_later(
    load_engine, byte_bundle: Bundle, method: str, chunk: int
) -> None:
    """Its keys and values are NaN. Slots behind a sequence's end are masked, which does not help
    against what is no number, where a longer one beside it makes them looked at."""
    engine = load_engine([method], byte_bundle, prefill_chunk=chunk)
    embedding = engine._target.model.embedding
    with torch.inference_mode():
        sound = embedding[7].clone()
        embedding[7] = torch.nan
        bad = await decode(engine, method, [*range(100, 140), *[7] * 80], max_tokens=5)
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


PROMPT = [1, 2, 3, 1, 2, 3, 1]


@pytest.mark.parametrize("right", [0, 3])
async def test_a_predicted_token_does_not_end_an_answer(load_engine, byte_bundle, right):
    """It follows `right` tokens of the answer, which are accepted."""
    engine = load_engine(["naive", "ngram", "adaptive"], byte_bundle, dtype="int8")
    plain = await decode(engine, "naive", PROMPT, max_tokens=20)
    spoilt = next(token for token in range(256) if token not in [*PROMPT, *plain.tokens])
    with torch.inference_mode():
        engine._target.model.embedding[spoilt] = torch.nan
    asked = {"max_tokens": 20, "predicted": [*plain.tokens[:right], spoilt, 5, 6]}
    alone = [await decode(engine, m, PROMPT, **asked) for m in ("ngram", "adaptive")]
    together = [decode(engine, m, PROMPT, **asked) for m in ("ngram", "naive", "adaptive")]
    for answer in [*alone, *await asyncio.gather(*together)]:
        assert answer.error is None
        assert answer.tokens == plain.tokens
    assert alone[0].stats.drafted_tokens > 0
    assert alone[0].stats.accepted_tokens >= right
    assert engine.load().healthy


@pytest.mark.slow
async def test_a_drawn_token_does_not_change_the_distribution(load_engine, five):
    """Answers end where the target emits the token, as often as without drafts."""
    spoilt, samples, methods = 3, 1500, ["naive", "draft_verify"]
    room = {"max_batch": 64, "max_waiting": samples, "kv_slots": 64 * 256}
    engine = load_engine(methods, five, dtype="int8", **room)
    with torch.inference_mode():
        engine._target.model.embedding[spoilt] = torch.nan
    generators, counts = map(random.Random, itertools.count()), list[Counter[Sequence[int]]]()
    in_order = SimpleNamespace(Random=lambda _: next(generators))
    with patch.object(sequence, "random", in_order):
        for method in methods:
            asked = {"max_tokens": 5, "temperature": 1.0}
            jobs = [decode(engine, method, [0, 1, 2], **asked) for _ in range(samples)]
            answers = await asyncio.gather(*jobs)
            counts.append(Counter(tuple(answer.tokens[:3]) for answer in answers))
    plain, drafted = counts
    assert all(spoilt not in tokens[:-1] for tokens in [*plain, *drafted])
    assert sum(n for tokens, n in drafted.items() if spoilt in tokens) > 100
    common = [tokens for tokens in plain | drafted if plain[tokens] + drafted[tokens] >= 16]
    table = [[counted[tokens] for tokens in common] for counted in (plain, drafted)]
    assert chi2_contingency(table).pvalue > 1e-3
