"""The suffix drafter in the engine: what it draws on, and what it learns of."""

import itertools
import random

import numpy as np
import pytest
from decoding import assert_greedy, decode

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.drafting.lookup.past import TOKEN_BYTES
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
async def test_where_nobody_looks_answers_up_none_is_kept(load_engine, byte_bundle, served):
    engine = load_engine(served, byte_bundle)
    for method in served:
        await mean_accepted(engine, byte_bundle, method=method)
    assert engine._past.capacity == engine.load().past_bytes == 0
    assert not any(isinstance(drafter, Suffix) for drafter in engine._scheduler._rows._drafters)


@pytest.mark.parametrize("method", ["naive", "suffix"])
@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_that_must_not_be_kept_is_not(make_rig, byte_bundle, method, kept):
    rig = make_rig(byte_bundle, ["naive", "suffix"])
    running = rig.submit(method, PROMPT, max_tokens=TOKENS, kept=kept)
    while running.finished is None:
        rig.round()
    rig.round()
    assert bool(rig.engine._past.bytes) is kept


async def test_an_answer_that_failed_is_not_kept(load_engine, byte_bundle, monkeypatch):
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
def test_settings_that_make_no_sense_are_refused(load_engine, byte_bundle, settings, said):
    with pytest.raises(ValueError, match=said):
        load_engine([suffix(**settings)], byte_bundle)
