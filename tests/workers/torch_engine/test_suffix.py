"""The suffix drafter in the engine: what it draws on, and what it learns of."""

import asyncio
import itertools
import random

import numpy as np
import pytest
from decoding import assert_greedy, decode

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.drafting.lookup.past import PIECE, TOKEN_BYTES
from workers.methods import get_method
from workers.torch_engine.drafters.adaptive import Suffix

PROMPT = random.Random(3).sample(range(256), 12)
TOKENS = 48


@pytest.fixture(autouse=True)
def free_rows(cost) -> None:
    """Whatever is looked up pays, on any machine."""
    cost(np.ones_like)


def suffix(**settings: float) -> MethodSpec:
    spec = get_method("suffix")
    merged = {**spec.settings, "drafter": {**spec.settings["drafter"], **settings}}
    return spec.model_copy(update={"settings": merged})


async def mean_accepted(engine, bundle: Bundle, scope: str = "", method: str = "suffix") -> float:
    """Of one answer, which is plain decoding's: accepted tokens a step."""
    answer = await decode(engine, method, PROMPT, scope=scope, max_tokens=TOKENS)
    assert_greedy(bundle, PROMPT, answer.tokens, TOKENS)
    return answer.stats.accepted_tokens / answer.stats.target_steps


async def test_a_copy_is_drafted_further_the_longer_it_goes_on(
    load_engine, byte_bundle: Bundle
) -> None:
    engine = load_engine([suffix()], byte_bundle)
    answer = await decode(engine, "suffix", list(range(60)) * 3, max_tokens=20)
    assert len(answer.stats.drafted_by_position) >= 8


async def test_answers_of_every_method_are_known(load_engine, byte_bundle: Bundle) -> None:
    """Both look-up methods find them, but only in the scope of the answer."""
    methods = ["naive", "ngram", "eagle3", "suffix", "adaptive"]
    engine = load_engine(methods, byte_bundle)
    for asks in ("suffix", "adaptive"):
        first = await mean_accepted(engine, byte_bundle, f"{asks} first", asks)
        for method in methods:
            scope = f"{method} then {asks}"
            await mean_accepted(engine, byte_bundle, scope, method)
            assert await mean_accepted(engine, byte_bundle, scope, asks) > first + 1.0
        other = await mean_accepted(engine, byte_bundle, f"{asks} other", asks)
        assert other == pytest.approx(first, abs=0.5)


async def test_what_is_kept_is_said_in_bytes(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([suffix(past_bytes=100 * TOKEN_BYTES), "naive"], byte_bundle)
    assert engine.load().past_bytes == 0
    for method in ("naive", "naive", "suffix", "naive"):
        await mean_accepted(engine, byte_bundle, method=method)
    assert TOKENS * TOKEN_BYTES < engine.load().past_bytes <= 100 * TOKEN_BYTES


@pytest.mark.parametrize("served", [["naive", "ngram"], ["naive", "adaptive_length"]])
async def test_where_nobody_looks_answers_up_none_is_kept(
    load_engine, byte_bundle: Bundle, served: list[str]
) -> None:
    engine = load_engine(served, byte_bundle)
    for method in served:
        await mean_accepted(engine, byte_bundle, method=method)
    assert engine._past.capacity == engine.load().past_bytes == 0
    assert not any(isinstance(drafter, Suffix) for drafter in engine._scheduler._rows._drafters)


def test_a_step_indexes_one_piece_at_most(make_rig, byte_bundle: Bundle) -> None:
    rig = make_rig(byte_bundle, ["naive", "suffix"])
    past, pieces = rig.engine._past, list[int]()
    for _ in range(5):
        past.add("", list(range(PIECE - 100)))
    running = rig.submit("naive", PROMPT, max_tokens=12)
    while running.finished is None:
        rig.round()
        pieces.append(len(past._pieces))
    assert pieces[:7] == [1, 2, 3, 4, 5, 5, 5]


async def test_what_waits_is_indexed_where_nobody_decodes(load_engine, byte_bundle: Bundle) -> None:
    """The next request may come in an hour, and finds all of it."""
    engine = load_engine(["naive", "suffix"], byte_bundle)
    asking = [decode(engine, "naive", [*PROMPT, n], max_tokens=6) for n in range(24)]
    await asyncio.gather(*asking)
    async with asyncio.timeout(20.0):
        while engine._past._waiting:
            await asyncio.sleep(0.01)
    assert len(engine._past._pieces) == len(asking)


@pytest.mark.parametrize("method", ["naive", "suffix"])
@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_that_must_not_be_kept_is_not(
    make_rig, byte_bundle: Bundle, method: str, kept: bool
) -> None:
    rig = make_rig(byte_bundle, ["naive", "suffix"])
    running = rig.submit(method, PROMPT, max_tokens=TOKENS, kept=kept)
    while running.finished is None:
        rig.round()
    rig.round()
    assert bool(rig.engine._past.bytes) is kept


async def test_an_answer_that_failed_is_not_kept(
    load_engine, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load_engine(["naive", "suffix"], byte_bundle)
    forward, count = engine._target.forward, itertools.count()

    def broken(*args):
        if next(count) == 20:
            raise ArithmeticError("broken on purpose")
        return forward(*args)

    monkeypatch.setattr(engine._target, "forward", broken)
    assert (await decode(engine, "naive", PROMPT, max_tokens=TOKENS)).finish == "error"
    monkeypatch.undo()
    assert engine.load().past_bytes == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"least": 0.0}, "least must be between 0 and 1"), ({"past_bytes": -1}, "must not be neg")],
)
def test_settings_that_make_no_sense_are_refused(
    load_engine, byte_bundle: Bundle, settings: dict[str, float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        load_engine([suffix(**settings)], byte_bundle)
