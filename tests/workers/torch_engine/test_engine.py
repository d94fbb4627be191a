"""What a caller of the engine sees: refusals, streams, seeds, cancellation, failures."""

import asyncio

import pytest
import torch
from decoding import LOSSLESS, decode, reference, request, until

from workers.bundle import Bundle
from workers.engine import EngineBusyError, EngineRefusedError
from workers.torch_engine.engine import TorchEngine


def idle(engine: TorchEngine) -> bool:
    load = engine.load()
    return load.running == load.waiting == load.outstanding_tokens == 0


@pytest.mark.parametrize(
    ("method", "prompt", "sampling", "said"),
    [
        ("medusa", [1], {}, "method: 'medusa' is not served here"),
        ("naive", [1] * 200, {"max_tokens": 57}, "max_tokens: .* ask for at most 56"),
        ("naive", [1] * 256, {"max_tokens": 1}, "prompt: .* shorten it"),
        ("naive", [1, 99999], {}, "prompt_token_ids: 99999 is outside the vocabulary"),
        ("naive", [-3], {}, "prompt_token_ids: -3 is outside"),
    ],
)
async def test_refusals_name_the_field_and_the_fix(
    load_engine, byte_bundle: Bundle, method: str, prompt: list[int], sampling: dict, said: str
) -> None:
    engine = load_engine(["naive"], byte_bundle)
    with pytest.raises(EngineRefusedError, match=said):
        await decode(engine, method, prompt, **sampling)
    assert idle(engine)


async def test_a_full_context_is_decoded_to_its_last_token(load_engine, byte_bundle):
    engine = load_engine(["draft_verify", "ngram"], byte_bundle)
    for method in ("draft_verify", "ngram"):
        answer = await decode(engine, method, [1, 2, 3, 4], max_tokens=252, ignore_eos=True)
        assert answer.finish == "length"
        assert len(answer.tokens) == 252


async def test_the_waiting_line_is_bounded(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(["naive"], byte_bundle, max_batch=2, max_waiting=1)
    busy = [
        asyncio.create_task(decode(engine, "naive", [1], max_tokens=200, ignore_eos=True))
        for _ in range(3)
    ]
    await until(lambda: engine.load().running == 2 and engine.load().waiting == 1)
    assert engine.load().outstanding_tokens > 200
    assert sum(engine.load().running_by_method.values()) == 2
    with pytest.raises(EngineBusyError, match="max_waiting is 1"):
        await decode(engine, "naive", [1], max_tokens=1)
    answers = await asyncio.gather(*busy)
    assert [len(a.tokens) for a in answers] == [200, 200, 200]
    assert max(a.stats.queue_seconds for a in answers if a.stats) > 0.0
    assert idle(engine)


def test_a_cancelled_request_leaves_the_waiting_line(make_rig, byte_bundle: Bundle) -> None:
    rig = make_rig(byte_bundle, ["naive"], max_batch=1)
    first, second = (rig.submit("naive", [1], max_tokens=20, ignore_eos=True) for _ in range(2))
    rig.round()
    assert [len(each) for each in rig.scheduler.underway()] == [1, 1]
    second.stream.cancelled = True
    rig.round()
    assert [len(each) for each in rig.scheduler.underway()] == [1, 0]
    assert len(rig.finish(first)[0].tokens) == 20


async def test_close_ends_what_runs_and_refuses_what_comes(load_engine, byte_bundle):
    engine = load_engine(["naive"], byte_bundle, max_batch=1)
    jobs = [
        asyncio.create_task(decode(engine, "naive", [i], max_tokens=250, ignore_eos=True))
        for i in (1, 2)
    ]
    await until(lambda: engine.load().running == 1)
    await asyncio.to_thread(engine.close)
    assert [(await job).finish for job in jobs] == ["cancelled", "cancelled"]
    assert not engine.load().healthy
    with pytest.raises(EngineBusyError, match="shut down"):
        await decode(engine, "naive", [1], max_tokens=1)


async def test_the_same_seed_gives_the_same_answer_by_every_method(load_engine, byte_bundle):
    """Alone, in one batch, and when another method continues the answer."""
    engine = load_engine([*LOSSLESS, "fuzzy"], byte_bundle)
    wishes = {"max_tokens": 40, "temperature": 0.8, "seed": 12}
    plain = await decode(engine, "naive", [7, 8, 9], **wishes)
    together = [decode(engine, method, [7, 8, 9], **wishes) for method in LOSSLESS]
    assert all(answer.tokens == plain.tokens for answer in await asyncio.gather(*together))
    for other in (None, 13):
        answer = await decode(engine, "naive", [7, 8, 9], **wishes | {"seed": other})
        assert answer.tokens != plain.tokens
    lossy = [await decode(engine, "fuzzy", [7, 8, 9], **wishes) for _ in range(2)]
    assert lossy[0].tokens == lossy[1].tokens
    begun = plain.tokens[:15]
    rest = await decode(engine, "eagle", [7, 8, 9], answered=begun, **wishes)
    assert [*begun, *rest.tokens] == plain.tokens


@pytest.mark.parametrize("call", ["release", "take"])
async def test_nobody_waits_when_a_row_cannot_be_had_or_freed(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    engine = load_engine(["naive"], byte_bundle)

    def broken(*_: object) -> None:
        raise ArithmeticError("broken on purpose")

    prefixes, pool = engine._scheduler.prefixes, engine._target.pool
    monkeypatch.setattr(pool if call == "release" else prefixes, call, broken)
    jobs = [decode(engine, "naive", [i], max_tokens=9 + 20 * i) for i in range(3)]
    ended = await asyncio.wait_for(asyncio.gather(*jobs, return_exceptions=True), 60)
    answers = [end for end in ended if not isinstance(end, EngineBusyError)]  # it had died before
    if call == "release":
        assert answers.pop(0).tokens == reference(byte_bundle, [0], 9)
    assert {a.finish for a in answers} == {"error"}
    await until(lambda: not engine.load().healthy)


async def test_a_slow_consumer_gets_several_steps_at_once(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(["naive"], byte_bundle)
    chunks = engine.generate(request("naive", [1, 2], max_tokens=60, ignore_eos=True))
    first = await anext(chunks)
    await until(lambda: idle(engine))
    rest = [chunk async for chunk in chunks]
    assert len(rest) == 1
    assert [*first.token_ids, *rest[0].token_ids] == reference(byte_bundle, [1, 2], 60)
    assert rest[0].finish_reason == "length"


def test_cuda_where_there_is_none_is_refused(load_engine, byte_bundle: Bundle) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ValueError, match="no CUDA device"):
        load_engine(["naive"], byte_bundle, device="cuda")


@pytest.mark.parametrize(("seconds", "used"), [({2: 0.007, 1: 0.012}, 2), ({2: 0.11, 1: 0.03}, 1)])
def test_a_busy_neighbour_costs_a_thread(make_rig, byte_bundle, monkeypatch, seconds, used):
    target = make_rig(byte_bundle, ["naive"]).engine._target
    monkeypatch.setattr(target.stopwatch, "seconds", lambda: seconds[torch.get_num_threads()])
    before = torch.get_num_threads()
    try:
        target.choose_threads(2)
        assert torch.get_num_threads() == used
    finally:
        torch.set_num_threads(before)
