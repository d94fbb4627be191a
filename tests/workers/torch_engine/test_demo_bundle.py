"""The demo bundle itself, on 50 prompts of all domains: our tokens are Hugging Face's."""

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest
from conftest_bundle import DEMO
from decoding import assert_same, decode, reference

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat

PROMPTS = Path(__file__).parents[3] / "ops" / "data" / "prompts.jsonl"
COUNT, MAX_TOKENS = 50, 64
METHODS = ["naive", "draft_verify", "ngram"]


@pytest.fixture(scope="module")
def demo() -> Bundle:
    if not (DEMO / "bundle.json").is_file():
        pytest.skip("bundles/demo has no bundle.json: its models are not trained yet")
    bundle = load_bundle(DEMO)
    if not (bundle.has("target") and bundle.has("draft")):
        pytest.skip("bundles/demo has no target and draft yet")
    return bundle


@pytest.fixture(scope="module")
def asked(demo: Bundle) -> list[list[int]]:
    """As many prompts of every domain as 50 allow, taken in turn."""
    if not PROMPTS.is_file():
        pytest.skip("ops/data/prompts.jsonl is not there")
    domains: dict[str, list[str]] = defaultdict(list)
    for line in PROMPTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        domains[row["domain"]].append(row["prompt"])
    texts = [p for turn in zip(*domains.values(), strict=False) for p in turn][:COUNT]
    tokenizer = demo.tokenizer()
    return [encode_chat(tokenizer, [{"role": "user", "content": t}], True) for t in texts]


@pytest.fixture(scope="module")
def expected(demo: Bundle, asked: list[list[int]]) -> list[list[int]]:
    return [reference(demo, prompt, MAX_TOKENS) for prompt in asked]


@pytest.mark.parametrize("method", METHODS)
async def test_alone(load_engine, demo: Bundle, asked, expected, method: str) -> None:
    engine = load_engine([method], demo, max_context=1024, kv_slots=1024)
    for prompt, theirs in zip(asked, expected, strict=True):
        answer = await decode(engine, method, prompt, max_tokens=MAX_TOKENS)
        assert_same(demo, prompt, answer.tokens, theirs)


async def test_in_mixed_batches(load_engine, demo: Bundle, asked, expected) -> None:
    engine = load_engine(METHODS, demo, max_context=1024, kv_slots=8192, max_waiting=COUNT)
    jobs = [
        decode(engine, METHODS[i % len(METHODS)], prompt, max_tokens=MAX_TOKENS)
        for i, prompt in enumerate(asked)
    ]
    for prompt, theirs, answer in zip(asked, expected, await asyncio.gather(*jobs), strict=True):
        assert_same(demo, prompt, answer.tokens, theirs)
