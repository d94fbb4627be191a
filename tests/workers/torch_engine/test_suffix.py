"""Look-ups in the engine, in past answers and in a datastore: they change no answer."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from decoding import assert_greedy, decode

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.drafting.lookup import datastore
from workers.drafting.lookup.datastore import MANIFEST, write_corpus
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


async def test_what_is_kept_is_bounded_in_bytes(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine([suffix(past_bytes=100 * TOKEN_BYTES), "naive"], byte_bundle)
    for method in ("naive", "naive", "suffix", "naive"):
        await mean_accepted(engine, byte_bundle, method=method)
    assert TOKENS * TOKEN_BYTES < engine._scheduler._past.bytes <= 100 * TOKEN_BYTES


@pytest.mark.parametrize("served", [["naive", "ngram"], ["naive", "adaptive_length"]])
async def test_where_nobody_looks_answers_up_none_is_kept(load_engine, byte_bundle, served):
    engine = load_engine(served, byte_bundle)
    for method in served:
        await mean_accepted(engine, byte_bundle, method=method)
    assert engine._scheduler._past.capacity == engine._scheduler._past.bytes == 0
    assert not any(isinstance(drafter, Suffix) for drafter in engine._scheduler._rows._drafters)


@pytest.mark.parametrize("method", ["naive", "suffix"])
@pytest.mark.parametrize("kept", [True, False])
def test_an_answer_that_must_not_be_kept_is_not(make_rig, byte_bundle, method, kept):
    rig = make_rig(byte_bundle, ["naive", "suffix"])
    running = rig.submit(method, PROMPT, max_tokens=TOKENS, kept=kept)
    while running.finished is None:
        rig.round()
    rig.round()
    assert bool(rig.scheduler._past.bytes) is kept


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
    assert engine._scheduler._past.bytes == 0


@pytest.fixture
async def folder(load_engine, byte_bundle: Bundle, tmp_path: Path) -> Path:
    """An index of the prompt's answer and of something else."""
    engine = load_engine(["naive"], byte_bundle)
    answer = await decode(engine, "naive", PROMPT, max_tokens=TOKENS)
    texts = [[*PROMPT, *answer.tokens], list(range(256))]
    write_corpus(tmp_path, texts, byte_bundle.tokenizer_hash)
    return tmp_path


async def test_an_answer_that_quotes_is_the_same_in_fewer_steps(load_engine, byte_bundle, folder):
    settings = {"folder": folder, "scopes": ["tenant acme"]}
    engine = load_engine(["suffix", "adaptive"], byte_bundle, datastore=settings)
    # Each has a scope of its own: past answers are looked up too.
    for method, scope in (("suffix", "tenant acme"), ("adaptive", f"tenant acme {'0f' * 32}")):
        without = await mean_accepted(engine, byte_bundle, f"tenant {method}", method)
        assert await mean_accepted(engine, byte_bundle, scope, method) > without + 1.0


async def test_a_spoilt_replacement_ends_no_answer(load_engine, byte_bundle, folder, monkeypatch):
    engine = load_engine(["suffix"], byte_bundle, datastore={"folder": folder})
    monkeypatch.setattr(datastore, "CHECK_SECONDS", 0.0)
    engine._looking_up[0]._look_ups._datastore._due = 0.0
    (folder / MANIFEST).write_text("no JSON")
    assert await mean_accepted(engine, byte_bundle, "no JSON") > 1.0
    (folder / MANIFEST).unlink()
    assert await mean_accepted(engine, byte_bundle, "gone") > 1.0


def test_an_index_of_another_tokenizer_is_refused_at_the_start(load_engine, byte_bundle, tmp_path):
    write_corpus(tmp_path, [[1, 2, 3]], "0" * 64)
    with pytest.raises(ValueError, match=r"engine\.datastore\.folder: .* another tokenizer"):
        load_engine(["suffix"], byte_bundle, datastore={"folder": tmp_path})
