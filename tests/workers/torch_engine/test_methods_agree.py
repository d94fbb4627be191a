"""Every method gives plain decoding's tokens, whatever a request asks for and predicts."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from conftest_bundle import DEMO
from decoding import LOSSLESS, SMALL, decode
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import EngineConfig, Grammar
from workers.bundle import load_bundle
from workers.chat_template import encode_chat
from workers.loader import load_engine

GRAMMARS = [
    None,
    Grammar(kind="regex", text="[a-z]{1,6} (yes|no, because of [a-z ]{5,12})"),
    Grammar(kind="regex", text="(so |no ){2,9}[a-z]{3}"),
    Grammar(kind="lark", text='start: "so" (" yes" T | " no" /[a-z ]{8,20}/)\nT: /a/ & /b/'),
    Grammar(
        kind="json_schema",
        text='{"type": "object", "properties": {"ok": {"type": "boolean"}, "why": {"type": '
        '"string", "maxLength": 12}}, "required": ["ok", "why"], "additionalProperties": false}',
    ),
]
TEXTS = ["so yes", "so no, because of it", "so so so so no", '{"ok": true, "why": "so"}', " yes"]
WORDS = [" no", " yes", "so", "}", "a"]
ASKED = st.fixed_dictionaries(
    {
        "grammar": st.sampled_from(GRAMMARS),
        "predicted": st.sampled_from([None, *TEXTS]),
        "bias": st.dictionaries(st.sampled_from(WORDS), st.sampled_from([-100.0, 3.0, 8.0, 100.0])),
        "min_tokens": st.sampled_from([0, 3, 12, 24]),
        "frequency_penalty": st.sampled_from([0.0, 0.7]),
        "repetition_penalty": st.sampled_from([1.0, 1.3]),
        "question": st.sampled_from(
            ["Say so yes. so yes so yes", "Is it so? so no, because of it"]
        ),
    }
)
THE_CASE = {
    "grammar": GRAMMARS[1],
    "predicted": "so yes",
    "bias": {" no": 100.0},
    "min_tokens": 12,
    "frequency_penalty": 0.7,
    "repetition_penalty": 1.3,
    "question": "Say so yes. so yes so yes",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    config = SMALL | {"max_context": 256, "kv_slots": 256 * len(LOSSLESS)}
    loaded = load_engine(LOSSLESS, load_bundle(DEMO), EngineConfig.model_validate(config))
    yield loaded
    loaded.close()


def answers(engine: Any, asked: dict[str, Any]) -> list[Any]:
    """Return the answer of each method, all decoded in one batch."""
    tokenizer = load_bundle(DEMO).tokenizer()

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    wishes: dict[str, Any] = {
        "grammar": asked["grammar"],
        "logit_bias": {ids(word)[0]: bias for word, bias in asked["bias"].items()},
        **{name: asked[name] for name in ("min_tokens", "frequency_penalty", "repetition_penalty")},
        "max_tokens": 24,
    }
    if asked["predicted"]:
        wishes["predicted"] = ids(asked["predicted"])
    prompt = encode_chat(tokenizer, [{"role": "user", "content": asked["question"]}], True)

    async def together() -> list[Any]:
        return await asyncio.gather(*(decode(engine, m, prompt, **wishes) for m in LOSSLESS))

    return asyncio.run(together())


def agree(engine: Any, asked: dict[str, Any]) -> None:
    found = dict(zip(LOSSLESS, answers(engine, asked), strict=True))
    plain = found["naive"]
    for method, answer in found.items():
        assert answer.tokens == plain.tokens, method
        assert (answer.finish, answer.error) == (plain.finish, plain.error), method
        assert answer.request_fault == plain.request_fault, method
    assert engine.load().healthy
    assert engine.load().drafter_failures == {}


@settings(max_examples=4)
@example(THE_CASE)
@given(ASKED)
def test_methods_agree(engine: Any, asked: dict[str, Any]) -> None:
    agree(engine, asked)


@pytest.mark.slow
@settings(max_examples=80)
@given(ASKED)
def test_methods_agree_on_many(engine: Any, asked: dict[str, Any]) -> None:
    agree(engine, asked)
