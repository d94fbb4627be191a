"""SmolLM2 and its heads in one real vLLM engine, in float32: every method's answers are those of
Hugging Face's greedy decoding, and what is drafted is accepted."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from conftest_bundle import DEMO
from decoding import assert_greedy, decode, vllm_cpu

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat
from workers.engine import Engine
from workers.loader import load_engine
from workers.methods import get_method
from workers.portfolio import part_of

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

METHODS = (
    *("vllm_naive", "vllm_ngram", "vllm_suffix", "vllm_draft"),
    *("vllm_medusa", "vllm_eagle", "vllm_eagle3", "vllm_adaptive"),
)
QUESTIONS = ("Name three fruits.", "What is 12 + 30?", "Write a short poem about the sea.")
TOKENS = 32


@pytest.fixture(scope="module")
def smollm2() -> Bundle:
    bundle = load_bundle(DEMO.parent / "smollm2")
    if not bundle.has("target"):
        pytest.skip("SmolLM2 is not imported here: `specadapt bundle import bundles/smollm2`")
    return bundle


@pytest.fixture(scope="module")
def methods(smollm2: Bundle) -> list[str]:
    """Those whose parts are in the bundle."""
    parts = {name: part_of(get_method(name)) for name in METHODS}
    return [name for name, part in parts.items() if part is None or smollm2.has(part)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(smollm2: Bundle, methods: list[str]) -> AsyncIterator[Engine]:
    config = vllm_cpu(max_context=384, kv_slots=8192)
    loaded = load_engine(methods, smollm2, config)
    yield loaded
    loaded.close()


async def test_every_methods_answers_are_the_targets(engine, smollm2, methods):
    tokenizer = smollm2.tokenizer()
    prompts = [encode_chat(tokenizer, [{"role": "user", "content": q}], True) for q in QUESTIONS]
    for method in methods:
        answers = await asyncio.gather(
            *(decode(engine, method, ids, max_tokens=TOKENS) for ids in prompts)
        )
        for ids, answer in zip(prompts, answers, strict=True):
            assert_greedy(smollm2, ids, answer.tokens, TOKENS)
        if part_of(get_method(method)) is not None:
            assert sum(answer.stats.accepted_tokens for answer in answers) > 0
