"""The demo bundle gives Hugging Face's tokens on prompts of all domains."""

import asyncio
import json
import random
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest
from conftest_bundle import DEMO
from decoding import LOSSLESS, Answer, assert_greedy, decode

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat

PROMPTS = Path(__file__).parents[3] / "ops" / "data" / "prompts.jsonl"
NEAR_TIES = 0.02
"""Share of answers that may differ, at near-ties only."""


@dataclass(frozen=True)
class Asked:
    """Prompts in token ids, and how many tokens are asked for."""

    bundle: Bundle
    prompts: list[list[int]]
    max_tokens: int

    def check(self, answers: list[Answer | None]) -> None:
        """Every answer that was not cancelled is Hugging Face's, near-ties apart."""
        differ = 0
        for prompt, answer in zip(self.prompts, answers, strict=True):
            if answer is not None:
                differ += not assert_greedy(self.bundle, prompt, answer.tokens, self.max_tokens)
        assert differ <= max(1, NEAR_TIES * len(answers))


@lru_cache(maxsize=1)
def demo() -> Bundle:
    if not (DEMO / "bundle.json").is_file():
        pytest.skip("bundles/demo has no bundle.json: its models are not trained yet")
    bundle = load_bundle(DEMO)
    if not (bundle.has("target") and bundle.has("draft")):
        pytest.skip("bundles/demo has no target and draft yet")
    return bundle


@lru_cache(maxsize=3)
def ask(plain: int, others: int, max_tokens: int) -> Asked:
    """`plain` prompts, the domains in turn; `others` of them under a system prompt that they
    share, and as many as a conversation's second turn."""
    bundle = demo()
    if not PROMPTS.is_file():
        pytest.skip("ops/data/prompts.jsonl is not there")
    domains: dict[str, list[str]] = defaultdict(list)
    for line in PROMPTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        domains[row["domain"]].append(row["prompt"])
    texts = [p for turn in zip(*domains.values(), strict=True) for p in turn]
    assert len(texts) >= plain > others
    users = [[{"role": "user", "content": text}] for text in texts]
    system = {"role": "system", "content": "You are a helpful assistant. Keep your answers short."}
    said = {"role": "assistant", "content": "Here is what you asked for. What else can I do?"}
    conversations = users[:plain]
    conversations += [[system, *user] for user in users[-others:]]
    conversations += [[*users[i + 1], said, *users[i]] for i in range(others)]
    tokenizer = bundle.tokenizer()
    prompts = [encode_chat(tokenizer, messages, True) for messages in conversations]
    return Asked(bundle, prompts, max_tokens)


MANY = (260, 50, 64)


@pytest.mark.parametrize("method", LOSSLESS)
@pytest.mark.slow
async def test_alone(load_engine, method: str) -> None:
    asked = ask(*MANY)
    engine = load_engine([method], asked.bundle, max_context=1024, kv_slots=1024)
    answers: list[Answer | None] = []
    for prompt in asked.prompts:
        answers.append(await decode(engine, method, prompt, max_tokens=asked.max_tokens))
    asked.check(answers)


@pytest.mark.parametrize("size", [(20, 5, 24), pytest.param(MANY, marks=pytest.mark.slow)])
async def test_in_random_batches(load_engine, size: tuple[int, int, int]) -> None:
    """Decode with all methods in one batch, with prompts in chunks and cancelled requests."""
    asked = ask(*size)
    count, rng = len(asked.prompts), random.Random(3)
    settings = {"max_context": 1024, "kv_slots": 8192, "max_waiting": count, "prefill_chunk": 32}
    engine = load_engine(LOSSLESS, asked.bundle, **settings)

    async def one(prompt: list[int], method: str, arrival: float, cut: int) -> Answer | None:
        await asyncio.sleep(arrival)
        answer = await decode(engine, method, prompt, max_tokens=asked.max_tokens, stop_after=cut)
        return None if cut else answer

    jobs = []
    for index, prompt in enumerate(asked.prompts):
        cut = rng.randrange(1, asked.max_tokens) if rng.random() < 0.125 else 0
        method = LOSSLESS[index % len(LOSSLESS)]
        jobs.append(one(prompt, method, rng.random() * count * 0.02, cut))
    asked.check(await asyncio.gather(*jobs))
    assert engine.load().running == 0
