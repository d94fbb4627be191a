"""Faults that experiments inject into an engine."""

import asyncio

import pytest
from decoding import decode, reference, until

from workers.bundle import Bundle
from workers.faults import Faults


def test_what_cannot_be_injected_is_refused(load_engine, byte_bundle: Bundle) -> None:
    faults = Faults(load_engine(["naive"], byte_bundle))
    with pytest.raises(ValueError, match="'ngram' is not served; available methods: \\['naive'"):
        faults.add_target_forwards("ngram", 1)
    with pytest.raises(ValueError, match="must be 0 or more, got -1"):
        faults.add_target_forwards("naive", -1)
    with pytest.raises(ValueError, match="only the replay engine"):
        faults.scale_replay("naive", 2.0)


async def test_a_slow_method_says_the_same(load_engine, byte_bundle: Bundle, monkeypatch) -> None:
    engine = load_engine(["draft_verify"], byte_bundle)
    forward, forwards = engine._target.forward, []

    def counted(proposals, captures):
        forwards.append(len(proposals))
        return forward(proposals, captures)

    monkeypatch.setattr(engine._target, "forward", counted)
    faults, prompt = Faults(engine), [1, 2, 3]
    for extra in (2, 0):
        forwards.clear()
        faults.add_target_forwards("draft_verify", extra)
        answer = await decode(engine, "draft_verify", prompt, max_tokens=30)
        assert answer.tokens == reference(byte_bundle, prompt, 30)
        assert answer.stats is not None
        assert len(forwards) == answer.stats.target_steps * (1 + extra)


async def test_only_the_slow_method_of_a_batch_costs_more(
    load_engine, byte_bundle: Bundle, monkeypatch
) -> None:
    engine = load_engine(["naive", "ngram"], byte_bundle)
    forward, methods = engine._target.forward, []

    def noted(proposals, captures):
        methods.append([p.sequence.method for p in proposals])
        return forward(proposals, captures)

    monkeypatch.setattr(engine._target, "forward", noted)
    Faults(engine).add_target_forwards("ngram", 1)
    answers = await asyncio.gather(
        *(decode(engine, m, [1, 2, 3], max_tokens=20) for m in ("naive", "ngram"))
    )
    together = [i for i, names in enumerate(methods) if len(names) == 2]
    assert together
    assert all(methods[i - 1] == ["ngram"] for i in together)
    for answer in answers:
        assert answer.tokens == reference(byte_bundle, [1, 2, 3], 20)


async def test_a_method_may_get_its_speed_back_in_the_middle_of_a_step(
    load_engine, byte_bundle: Bundle, monkeypatch
) -> None:
    engine = load_engine(["naive"], byte_bundle)
    faults, forward = Faults(engine), engine._target.forward

    def faster_meanwhile(proposals, captures):
        faults.add_target_forwards("naive", 0)
        return forward(proposals, captures)

    faults.add_target_forwards("naive", 3)
    monkeypatch.setattr(engine._target, "forward", faster_meanwhile)
    answer = await decode(engine, "naive", [1, 2, 3, 4], max_tokens=4, ignore_eos=True)
    assert answer.finish == "length"


async def test_a_poisoned_target_fails_for_good(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(["naive"], byte_bundle)
    assert (await decode(engine, "naive", [1], max_tokens=5)).finish == "length"
    Faults(engine).poison()
    for _ in range(3):
        assert "logits are NaN" in (await decode(engine, "naive", [2], max_tokens=5)).error
    await until(lambda: not engine.load().healthy)
    unspoilt = load_engine(["naive"], byte_bundle)
    assert (await decode(unspoilt, "naive", [1], max_tokens=5)).finish == "length"


async def test_drafters_fail_and_work_again(load_engine, byte_bundle: Bundle) -> None:
    engine, prompt = load_engine(["draft_verify"], byte_bundle), [1, 2, 3]
    faults = Faults(engine)
    for broken in (True, False):
        before = sum(engine.load().drafter_failures.values())
        faults.break_drafters(broken)
        answer = await decode(engine, "draft_verify", prompt, max_tokens=10)
        assert answer.tokens == reference(byte_bundle, prompt, 10)
        assert (sum(engine.load().drafter_failures.values()) > before) is broken
