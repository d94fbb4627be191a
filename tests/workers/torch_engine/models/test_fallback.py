"""Models that our own forward does not cover, through transformers' own."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest
import random_heads
import torch
from decoding import assert_greedy, decode, hugging_face, method_of
from transformers import LlamaConfig
from zoo import OTHERS, VOCAB, random_model
from zoo import save_bundle as save

from workers.bundle import Bundle, BundleError
from workers.torch_engine.models.fallback import CachedModel, RereadModel
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import FINAL
from workers.torch_engine.models.model import load_model

CPU = torch.device("cpu")
TREE = method_of("tree", "draft_model", "static", tree={"paths": "0 1 1.0 1.1 1.0.0 1.1.0"})
KIND = {"gpt2": CachedModel, "mixtral": CachedModel, "bloom": RereadModel, "mamba": RereadModel}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    folder = tmp_path_factory.mktemp("fallback")
    pairs = {name: (name, name) for name in OTHERS} | {
        "llama-gpt2": ("llama", "gpt2"),
        "gpt2-qwen3": ("gpt2", "qwen3"),
    }
    return {
        name: save(
            folder / name, random_model(target), random_model(draft, seed=int(draft != name))
        )
        for name, (target, draft) in pairs.items()
    }


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(count)
    return [[rng.randrange(VOCAB) for _ in range(1 + 3 * i)] * 2 for i in range(count)]


@pytest.mark.parametrize("name", OTHERS)
async def test_chains_trees_and_batches(load_engine, bundles, name: str) -> None:
    """A draft that is its target's copy is accepted whole, on a chain and along a tree's best."""
    engine = load_engine(["naive", "ngram", "draft_verify", TREE], bundles[name])
    assert isinstance(engine._target.model, KIND[name])
    methods = ["naive", "ngram", "draft_verify", "tree"]
    jobs = list(zip(methods, prompts(4), strict=True))
    answers = await asyncio.gather(
        *(decode(engine, method, prompt, max_tokens=14) for method, prompt in jobs)
    )
    for (method, prompt), answer in zip(jobs, answers, strict=True):
        assert_greedy(bundles[name], prompt, answer.tokens, 14)
        if method == "draft_verify":
            assert answer.stats.accepted_tokens > 8


@pytest.mark.parametrize("name", ["llama-gpt2", "gpt2-qwen3"])
async def test_target_and_draft_of_different_families(load_engine, bundles, name: str) -> None:
    engine = load_engine(["draft_verify"], bundles[name], max_context=64)
    for prompt in prompts(3)[1:]:
        answer = await decode(engine, "draft_verify", prompt, max_tokens=12)
        assert_greedy(bundles[name], prompt, answer.tokens, 12)
        assert answer.stats.drafted_tokens > 0


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
async def test_heads_read_their_states(load_engine, tmp_path: Path, name: str) -> None:
    """With our KV pool and without it."""
    bundle = save(tmp_path, random_model(name), random_model(name))
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_attention_heads=3, head_dim=16
    )
    random_heads.save_medusa(tmp_path / "medusa", config)
    random_heads.save_eagle(tmp_path / "eagle", config)
    bundle = replace(bundle, parts=bundle.parts | {"medusa": "medusa", "eagle": "eagle"})
    methods, prompt = ["medusa", "eagle2"], [3, 1, 4, 1, 5]
    engine = load_engine(methods, bundle, max_context=64)
    for method in methods:
        answer = await decode(engine, method, prompt, max_tokens=12)
        assert_greedy(bundle, prompt, answer.tokens, 12)
        assert answer.stats.drafted_tokens > 0


def test_the_context_ends_where_learned_positions_do(load_engine, bundles) -> None:
    engine = load_engine(["naive"], bundles["gpt2"], max_context=256)
    assert engine._capacity == 64
    with pytest.raises(ValueError, match=r"computes 64 positions.*engine.max_context"):
        load_engine(["draft_verify"], bundles["llama-gpt2"], max_context=256)


@pytest.mark.parametrize("name", ["gpt2", "bloom"])
def test_hidden_states_are_captured(bundles, name: str) -> None:
    model = load_model(bundles[name].part("target"), torch.float32, CPU)
    theirs = hugging_face(bundles[name].part("target"))
    tokens = [3, 1, 4, 1, 5]
    pool = model.make_pool(1, 16)
    with torch.inference_mode():
        layout = model.lay_out([Span(pool.acquire(), tokens, logits_from=4)], pool)
        logits, hidden = model.forward(layout, pool, (1, FINAL))
        expected = theirs(torch.tensor([tokens]), output_hidden_states=True)
    torch.testing.assert_close(logits, expected.logits[0, -1:], atol=1e-4, rtol=1e-4)
    for index, states in hidden.items():
        torch.testing.assert_close(states, expected.hidden_states[index][0], atol=1e-4, rtol=1e-4)


def test_what_transformers_cannot_load_is_refused(tmp_path: Path) -> None:
    OTHERS["gpt2"].save_pretrained(tmp_path)
    with pytest.raises(BundleError, match="transformers cannot load"):
        load_model(tmp_path, torch.float32, CPU)
