"""Tracing: drafting at every position of a plain answer tells the steps of decoding it."""

import asyncio

import pytest
from decoding import SMALL, decode

from ops.routing_tables.bounds import steps
from ops.routing_tables.tracer import Tracer
from schemas import EngineConfig, MethodSpec
from workers.loader import load_engine
from workers.methods import get_method

METHODS = ("draft_verify", "ngram", "medusa", "eagle", "eagle2", "eagle3")
CONFIG = EngineConfig.model_validate(SMALL | {"max_batch": 4})
PROMPTS = [(*range(20, 44), *range(20, 40)), tuple(range(60, 71)), (5, 6, 7, 5, 6, 7, 5, 6)]


def tracer(bundle, *methods, max_tokens=24):
    return Tracer([*map(get_method, ("naive", *methods))], "naive", bundle, CONFIG, max_tokens)


def test_a_trace_tells_the_steps_of_every_method(tiny_bundle):
    async def both():
        engine = load_engine(["naive", *METHODS], tiny_bundle, CONFIG)
        asked = {"temperature": 0.0, "max_tokens": 24}
        decoded = {
            m: [await decode(engine, m, list(p), **asked) for p in PROMPTS]
            for m in ("naive", *METHODS)
        }
        engine.close()
        own = tracer(tiny_bundle, *METHODS)
        texts = await own.texts(PROMPTS)
        return decoded, texts, {m: await own.trace(m, texts) for m in METHODS}

    decoded, texts, traced = asyncio.run(both())
    assert [list(t.answer) for t in texts] == [list(a.tokens) for a in decoded["naive"]]
    for method, accepted in traced.items():
        taken = [answer.stats.target_steps for answer in decoded[method]]
        assert [1 + steps(own) for own in accepted] == taken, method
    assert any(sum(map(sum, own)) for own in traced.values())


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"verifier": "typical", "lossless": False}, "what a lossy method accepts"),
        ({"engine": "vllm"}, "only methods of the torch engine"),
        ({"drafter": "adaptive"}, "it drafts by measured costs"),
    ],
)
def test_what_an_answer_cannot_tell_is_refused(tiny_bundle, changed, said):
    spec = MethodSpec.model_validate(get_method("medusa").model_dump() | changed)
    with pytest.raises(ValueError, match=said):
        Tracer([get_method("naive"), spec], "naive", tiny_bundle, CONFIG, 8)


def test_suffix_knows_answers_that_it_was_traced_on_before_and_no_others(tiny_bundle):
    answer = tuple(range(100, 130))
    own = tracer(tiny_bundle, "suffix", "ngram", max_tokens=26)

    async def thrice():
        text = own.read((5, 6, 7, 8, *answer[:4]), answer[4:])
        return [sum((await own.trace(m, [text]))[0]) for m in ("ngram", "suffix", "suffix")]

    first, before, after = asyncio.run(thrice())
    assert first == before == 0 < after


def test_a_drafter_that_is_always_right_is_not_taken_for_a_wrong_one(tiny_bundle):
    """Traced drafts are not verified and must not count as rejected ones."""
    answer = (*range(100, 106),) * 8
    own = tracer(tiny_bundle, "suffix", max_tokens=41)

    async def once():
        return (await own.trace("suffix", [own.read((5, 6, 7, *answer[:7]), answer[7:])]))[0]

    assert min(asyncio.run(once())[:-1]) > 0
