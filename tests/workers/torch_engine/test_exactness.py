"""At temperature 0 in float32 every lossless method says what Hugging Face says."""

import asyncio
import random
from pathlib import Path

import numpy as np
import odd_parts  # noqa: F401 (registers its parts)
import pytest
from conftest_bundle import byte_tokenizer, make_bundle
from decoding import Answer, assert_same, decode, reference

from schemas import MethodSpec
from workers.bundle import Bundle

LOSSLESS = ["naive", "draft_verify", "ngram", "suffix", "adaptive"]


def prompts(vocab: int, count: int, seed: int = 0) -> list[list[int]]:
    """Random tokens with a repeated piece, of lengths from 1 to about 90."""
    rng = random.Random(seed)
    made = [[rng.randrange(vocab)]]
    while len(made) < count:
        piece = [rng.randrange(vocab) for _ in range(rng.randrange(2, 30))]
        made.append(piece * rng.randrange(1, 4))
    return made


@pytest.mark.parametrize("method", LOSSLESS)
async def test_alone(load_engine, tiny_bundle: Bundle, method: str) -> None:
    engine = load_engine([method], tiny_bundle)
    for prompt in prompts(4000, 6):
        answer = await decode(engine, method, prompt, max_tokens=40)
        assert_same(tiny_bundle, prompt, answer.tokens, reference(tiny_bundle, prompt, 40))


async def test_mixed_batches(load_engine, byte_bundle: Bundle) -> None:
    """Methods share forwards; requests come, are cancelled and end at different times."""
    engine = load_engine([*LOSSLESS, "fuzzy"], byte_bundle)
    rng = random.Random(1)

    async def one(index: int, prompt: list[int]) -> Answer | None:
        await asyncio.sleep(rng.random() * 0.1)
        if index % 5 == 4:
            await decode(engine, "fuzzy", prompt, max_tokens=60, stop_after=rng.randrange(1, 20))
            return None
        return await decode(engine, LOSSLESS[index % 3], prompt, max_tokens=rng.randrange(1, 70))

    asked = prompts(256, 30)
    answers = await asyncio.gather(*(one(i, p) for i, p in enumerate(asked)))
    batches, mixed = [], 0
    for prompt, answer in zip(asked, answers, strict=True):
        if answer is None:
            continue
        assert answer.stats is not None
        wanted = answer.stats.output_tokens if answer.finish == "length" else 70
        expected = reference(byte_bundle, prompt, wanted)
        assert_same(byte_bundle, prompt, answer.tokens, expected)
        batches.append(answer.stats.mean_batch)
        beside = answer.stats.batch_by_method
        assert sum(beside.values()) == pytest.approx(answer.stats.mean_batch)
        mixed += len(beside) > 1
    assert max(batches) > 3
    assert mixed > 0
    assert engine.load().running == 0


async def test_drafts_are_accepted_and_counted(load_engine, byte_bundle: Bundle, cost) -> None:
    cost(np.ones_like)  # whatever may come is drafted, on any machine
    engine = load_engine(LOSSLESS, byte_bundle)
    prompt = list(range(10, 20)) * 3
    for method in LOSSLESS:
        # of a scope of its own: the answer is the same by all of them
        answer = await decode(engine, method, prompt, max_tokens=80, scope=method)
        stats = answer.stats
        assert stats is not None
        assert stats.batch_by_method == {method: 1.0}
        assert stats.output_tokens == len(answer.tokens) == len(answer.drafted)
        assert sum(answer.drafted) == stats.accepted_tokens == sum(stats.accepted_by_position)
        assert stats.drafted_tokens == sum(stats.drafted_by_position)
        assert stats.target_steps + stats.accepted_tokens == stats.output_tokens
        if method == "naive":
            assert stats.output_tokens / stats.target_steps == 1.0
        else:
            assert 0 < stats.accepted_tokens < stats.drafted_tokens


async def test_trees_and_chains_in_one_batch(load_engine, tmp_path: Path) -> None:
    """Siblings, compaction to the accepted path, and the draft model's own trees."""
    bundle = make_bundle(tmp_path / "small", tokenizer=byte_tokenizer(), vocab=6, kv_heads=2)
    settings = {"stop": {"gamma": 3}}
    shared = {"lossless": True, "source": "test", "settings": settings}
    tree = MethodSpec(name="tree", drafter="test_tree", verifier="one_hot", **shared)
    model_tree = MethodSpec(
        name="model_tree", drafter="draft_model", tree="test_pairs", verifier="one_hot", **shared
    )
    engine = load_engine(["naive", "draft_verify", tree, model_tree], bundle)
    methods = ["naive", "draft_verify", "tree", "model_tree"] * 3
    asked = prompts(6, len(methods), seed=3)
    jobs = [decode(engine, m, p, max_tokens=50) for m, p in zip(methods, asked, strict=True)]
    answers = await asyncio.gather(*jobs)
    for prompt, answer in zip(asked, answers, strict=True):
        assert_same(bundle, prompt, answer.tokens, reference(bundle, prompt, 50))
    for answer in (a for m, a in zip(methods, answers, strict=True) if "tree" in m):
        assert answer.stats is not None
        assert answer.stats.accepted_tokens > 0


async def test_bfloat16_decodes(load_engine, byte_bundle: Bundle) -> None:
    engine = load_engine(LOSSLESS, byte_bundle, dtype="bfloat16")
    answers = [await decode(engine, m, [5, 6, 7], max_tokens=8) for m in LOSSLESS]
    assert {len(a.tokens) for a in answers} == {8}
