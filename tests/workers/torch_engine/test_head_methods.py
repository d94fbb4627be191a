"""Methods with heads say what the target says: alone, in mixed batches, in chunks, sampled."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_heads
import table_world as world
from conftest_bundle import byte_tokenizer, make_bundle
from decoding import assert_same, decode, reference
from engine_chances import answers_p_value
from transformers import LlamaConfig
from zoo import assert_generated, generated, random_model, save_bundle
from zoo import reference as zoo_reference

from schemas import MethodSpec
from workers.bundle import Bundle, BundleError, load_bundle
from workers.methods import get_method

LOSSLESS = ["medusa", "eagle", "eagle2", "eagle3"]
CHUNK = 16


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A vocabulary of six, so that random heads are often right."""
    folder = tmp_path_factory.mktemp("bundle") / "six"
    return make_bundle(folder, tokenizer=byte_tokenizer(), vocab=6, kv_heads=2)


def prompts(count: int, vocab: int) -> list[list[int]]:
    """From one token to several chunks."""
    rng = random.Random(count)
    lengths = [1, 2, CHUNK, CHUNK + 1, 3 * CHUNK + 3, 5, 40]
    return [[rng.randrange(vocab) for _ in range(lengths[i % 7])] for i in range(count)]


async def test_mixed_batches(load_engine, six: Bundle) -> None:
    """Trees, chains and plain decoding share forwards; some requests are cancelled."""
    methods = [*LOSSLESS, "naive", "medusa_typical", "draft_verify"]
    engine = load_engine(methods, six, prefill_chunk=CHUNK)
    asked = prompts(28, 6)

    async def one(index: int, prompt: list[int]) -> Any:
        # arrivals apart, so that sequences of different ages meet; no outcome depends on it
        await asyncio.sleep(index % 5 * 0.01)
        stop_after = 3 + index if index % 9 == 8 else 0
        method, most = methods[index % len(methods)], 10 + index
        return await decode(engine, method, prompt, max_tokens=most, stop_after=stop_after)

    answers = await asyncio.gather(*(one(i, p) for i, p in enumerate(asked)))
    accepted: Counter[str] = Counter()
    for index, (prompt, answer) in enumerate(zip(asked, answers, strict=True)):
        if answer.stats is None:
            continue
        assert_same(six, prompt, answer.tokens, reference(six, prompt, 10 + index))
        accepted[answer.stats.method] += answer.stats.accepted_tokens
    assert all(accepted[method] > 0 for method in LOSSLESS)
    assert engine.load().running == 0


@pytest.mark.parametrize("limited", [1, 2, 3])
async def test_the_last_tokens(load_engine, six: Bundle, limited: int) -> None:
    """Where less may be emitted than a tree is deep, or nothing drafted at all."""
    engine = load_engine(LOSSLESS, six)
    for method in LOSSLESS:
        answer = await decode(engine, method, [1, 2, 3], max_tokens=limited)
        assert_same(six, [1, 2, 3], answer.tokens, reference(six, [1, 2, 3], limited))


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundle") / "five"
    return make_bundle(folder, tokenizer=byte_tokenizer(), vocab=world.VOCAB, seed=5)


def sampled(name: str, drafter: str, **parts: Any) -> MethodSpec:
    settings = {"stop": {"gamma": 3}} | parts.pop("settings", {})
    return MethodSpec(
        name=name, drafter=drafter, lossless=True, source="test", settings=settings, **parts
    )


SAMPLED = [
    (get_method("eagle"), {"temperature": 0.8, "top_p": 0.9}),
    (sampled("eagle3_chain", "eagle3", verifier="rejection"), {"frequency_penalty": 0.5}),
    (
        sampled(
            "eagle3_drawn",
            "eagle3",
            tree="static",
            verifier="multi_step",
            settings={"tree": {"widths": (2, 2), "sample": True}},
        ),
        {"temperature": 1.3},
    ),
    (get_method("medusa"), {"top_k": 4}),
]


@pytest.mark.parametrize(("method", "wishes"), SAMPLED, ids=lambda v: getattr(v, "name", ""))
async def test_distributions(load_engine, five: Bundle, method: MethodSpec, wishes: dict) -> None:
    """First tokens of many answers against exact enumeration."""
    assert await answers_p_value(load_engine, five, method, wishes, world.VOCAB) > 1e-3


async def test_bfloat16_decodes(load_engine, six: Bundle) -> None:
    engine = load_engine(LOSSLESS, six, dtype="bfloat16")
    answers = [await decode(engine, m, [5, 4, 3], max_tokens=8) for m in LOSSLESS]
    assert [len(a.tokens) for a in answers] == [8, 8, 8, 8]


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
async def test_targets_that_run_through_transformers(
    load_engine, tmp_path: Path, name: str
) -> None:
    """With our KV pool and without: their hidden states are as good."""
    bundle = save_bundle(tmp_path, random_model(name), random_model(name))
    config = LlamaConfig(
        vocab_size=100,
        hidden_size=48,
        intermediate_size=80,
        num_attention_heads=3,
        head_dim=16,
    )
    random_heads.save_medusa(tmp_path / "medusa", config)
    random_heads.save_eagle(tmp_path / "eagle", config)
    bundle = replace(bundle, parts=bundle.parts | {"medusa": "medusa", "eagle": "eagle"})
    methods, prompt = ["medusa", "eagle2"], [3, 1, 4, 1, 5]
    engine = load_engine(methods, bundle, max_context=64)
    theirs = zoo_reference(bundle.part("target"))
    expected = generated(theirs, prompt, 12)
    for method in methods:
        answer = await decode(engine, method, prompt, max_tokens=12)
        assert_generated(theirs, prompt, answer.tokens, expected)
        assert answer.stats is not None
        assert answer.stats.drafted_tokens > 0


def test_a_bundle_without_the_part(load_engine, tmp_path: Path) -> None:
    bundle = save_bundle(tmp_path, random_model("llama"), random_model("llama"))
    assert not load_bundle(tmp_path).has("eagle3")
    with pytest.raises(BundleError, match="bundle zoo has no part 'eagle3': it has draft, target"):
        load_engine(["eagle3"], bundle)
