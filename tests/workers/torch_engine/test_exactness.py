"""At temperature 0 in float32 every lossless method gives Hugging Face's answers."""

import asyncio
import random
from collections import Counter

import numpy as np
import pytest
from decoding import LOSSLESS, Answer, assert_greedy, decode, request

from workers.bundle import Bundle


def prompts(vocab: int, count: int, seed: int = 0) -> list[list[int]]:
    """Return prompts of 1 to about 90 random tokens in which a piece repeats."""
    rng = random.Random(seed)
    made = [[rng.randrange(vocab)]]
    while len(made) < count:
        piece = [rng.randrange(vocab) for _ in range(rng.randrange(2, 30))]
        made.append(piece * rng.randrange(1, 4))
    return made


async def test_mixed_batches(load_engine, six: Bundle) -> None:
    """Methods share forward passes; some requests are cancelled."""
    methods = [*LOSSLESS, "medusa_typical", "fuzzy"]
    engine = load_engine(methods, six, prefill_chunk=16, max_waiting=64)
    asked = [(m, p) for p in prompts(6, 4) for m in methods]
    rng = random.Random(1)
    lengths = [rng.randrange(2, 60) for _ in asked]

    async def one(method: str, prompt: list[int], tokens: int) -> Answer:
        cut = 1 + tokens // 4 if method == "fuzzy" else 0
        return await decode(engine, method, prompt, max_tokens=tokens, stop_after=cut)

    answers = await asyncio.gather(
        *(one(*pair, tokens) for pair, tokens in zip(asked, lengths, strict=True))
    )
    accepted, batches, mixed = Counter[str](), [], 0
    for (method, prompt), tokens, answer in zip(asked, lengths, answers, strict=True):
        if method == "fuzzy":
            continue
        assert_greedy(six, prompt, answer.tokens, tokens)
        accepted[method] += answer.stats.accepted_tokens
        batches.append(answer.stats.mean_batch)
        by_method = answer.stats.batch_by_method
        assert sum(by_method.values()) == pytest.approx(answer.stats.mean_batch)
        mixed += len(by_method) > 1
    assert all(accepted[m] > 0 for m in ("draft_verify", "medusa", "eagle", "eagle2", "eagle3"))
    assert max(batches) > 3
    assert mixed > 0
    assert engine.load().running == 0


async def test_drafts_are_accepted_and_counted(load_engine, byte_bundle: Bundle, cost) -> None:
    cost(np.ones_like)  # every draft pays, on any machine
    methods = ["naive", "draft_verify", "ngram", "suffix", "adaptive"]
    engine = load_engine(methods, byte_bundle)
    prompt = list(range(10, 20)) * 3
    for method in methods:
        # The answers are equal. In one scope, later methods would look them up.
        answer = await decode(engine, method, prompt, max_tokens=80, scope=method)
        stats = answer.stats
        assert stats.batch_by_method == {method: 1.0}
        assert stats.output_tokens == len(answer.tokens) == len(answer.drafted)
        assert sum(answer.drafted) == stats.accepted_tokens == sum(stats.accepted_by_position)
        assert stats.drafted_tokens == sum(stats.drafted_by_position)
        assert stats.target_steps + stats.accepted_tokens == stats.output_tokens
        if method == "naive":
            assert stats.output_tokens / stats.target_steps == 1.0
        else:
            assert 0 < stats.accepted_tokens < stats.drafted_tokens


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_a_request_bounds_its_drafts(load_engine, six: Bundle, most: int) -> None:
    engine = load_engine(LOSSLESS, six)
    asked = [
        request(method, [5, 4, 3] * 5, scope=method, max_tokens=30).model_copy(
            update={"max_draft_tokens": most}
        )
        for method in LOSSLESS
    ]
    plain = await decode(engine, "naive", [5, 4, 3] * 5, max_tokens=30)
    for one in asked:
        answer = Answer()
        async for chunk in engine.generate(one):
            answer.add(chunk)
        assert answer.tokens == plain.tokens
        assert len(answer.stats.drafted_by_position) <= most


async def test_bfloat16_decodes(load_engine, six: Bundle) -> None:
    engine = load_engine(LOSSLESS, six, dtype="bfloat16")
    answers = [decode(engine, m, [5, 4, 3], max_tokens=8) for m in LOSSLESS]
    assert {len(answer.tokens) for answer in await asyncio.gather(*answers)} == {8}
