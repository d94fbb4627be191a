"""The demo bundle gives Hugging Face's tokens on prompts of all domains."""

import asyncio
import json
import random
from collections import defaultdict
from pathlib import Path

import pytest
from conftest_bundle import DEMO
from decoding import LOSSLESS, Answer, assert_greedy, decode

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat

PROMPTS = Path(__file__).parents[3] / "ops" / "data" / "prompts.jsonl"
NEAR_TIES = 0.02
"""Share of answers that may differ, at near-ties only."""


def conversations(bundle: Bundle, plain: int, others: int) -> list[list[int]]:
    """`plain` prompts, the domains in turn; `others` of them under a system prompt that they
    share, and as many as a conversation's second turn."""
    domains: dict[str, list[str]] = defaultdict(list)
    for row in map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines()):
        domains[row["domain"]].append(row["prompt"])
    texts = [p for turn in zip(*domains.values(), strict=True) for p in turn]
    assert len(texts) >= plain > others
    users = [[{"role": "user", "content": text}] for text in texts]
    system = {"role": "system", "content": "You are a helpful assistant. Keep your answers short."}
    said = {"role": "assistant", "content": "Here is what you asked for. What else can I do?"}
    asked = users[:plain] + [[system, *user] for user in users[-others:]]
    asked += [[*users[i + 1], said, *users[i]] for i in range(others)]
    return [encode_chat(bundle.tokenizer(), messages, True) for messages in asked]


@pytest.mark.parametrize(
    ("plain", "others", "tokens"),
    [(12, 4, 24), pytest.param(260, 50, 64, marks=pytest.mark.slow)],
)
async def test_in_random_batches(load_engine, plain: int, others: int, tokens: int) -> None:
    """Decode with all methods in one batch, with prompts in chunks and cancelled requests."""
    bundle, rng = load_bundle(DEMO), random.Random(3)
    prompts = conversations(bundle, plain, others)
    count = len(prompts)
    settings = {"max_context": 1024, "kv_slots": 8192, "max_waiting": count, "prefill_chunk": 32}
    engine = load_engine(LOSSLESS, bundle, **settings)

    async def one(prompt: list[int], method: str, arrival: float, cut: int) -> Answer | None:
        await asyncio.sleep(arrival)
        answer = await decode(engine, method, prompt, max_tokens=tokens, stop_after=cut)
        return None if cut else answer

    jobs = []
    for index, prompt in enumerate(prompts):
        cut = rng.randrange(1, tokens) if rng.random() < 0.125 else 0
        method = LOSSLESS[index % len(LOSSLESS)]
        jobs.append(one(prompt, method, rng.random() * count * 0.02, cut))
    differ = 0
    for prompt, answer in zip(prompts, await asyncio.gather(*jobs), strict=True):
        if answer is not None:
            differ += not assert_greedy(bundle, prompt, answer.tokens, tokens)
    assert differ <= max(1, NEAR_TIES * count)
    assert engine.load().running == 0
