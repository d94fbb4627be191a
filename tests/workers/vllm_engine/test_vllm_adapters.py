"""A real vLLM engine whose requests choose a LoRA adapter or none, in float32 against Hugging Face
with the adapter's weights merged."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from decoding import assert_greedy, decode, until
from random_adapter import save_adapter

from schemas import EngineConfig, VllmConfig
from schemas.prefixes import HASH_BYTES, prefix_hashes
from workers.bundle import Bundle
from workers.engine import Engine, EngineRefusedError
from workers.loader import load_engine

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

ADAPTER = "law"
METHODS = ("vllm_naive", "vllm_ngram", "vllm_eagle3")
TOKENS = 24


@pytest.fixture(scope="module")
def folder(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter, the target that it makes, and an adapter that vLLM does not load."""
    made = tmp_path_factory.mktemp("adapters")
    save_adapter(bundle.part("target"), made / ADAPTER).save_pretrained(made / "merged")
    save_adapter(bundle.part("target"), made / "dora", use_dora=True)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(bundle: Bundle, folder: Path) -> AsyncIterator[Engine]:
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    adapters = {name: folder / name for name in (ADAPTER, "dora")}
    config = EngineConfig(
        device="cpu",
        dtype="float32",
        max_batch=8,
        max_context=384,
        kv_slots=4096,
        vllm=VllmConfig(enforce_eager=True, lora_adapters=adapters),
    )
    loaded = load_engine(METHODS, bundle, config)
    yield loaded
    loaded.close()


async def test_a_batch_holds_answers_of_the_target_and_of_an_adapter(
    engine, bundle, folder, prompts
):
    merged = replace(bundle, parts=bundle.parts | {"target": str(folder / "merged")})
    jobs = [(m, one, ids) for m in METHODS for ids in prompts[:4] for one in (None, ADAPTER)]
    answers = await asyncio.gather(
        *(
            decode(engine, method, ids, adapter=adapter, max_tokens=TOKENS, ignore_eos=True)
            for method, adapter, ids in jobs
        )
    )
    for (_, adapter, ids), one in zip(jobs, answers, strict=True):
        assert_greedy(merged if adapter else bundle, ids, one.tokens, TOKENS, ignore_eos=True)
    plain, adapted = answers[0::2], answers[1::2]
    assert sum(a.tokens != b.tokens for a, b in zip(plain, adapted, strict=True)) >= 6
    for answers_of in (plain, adapted):
        for method in METHODS[1:]:
            assert sum(a.stats.accepted_tokens for a in answers_of if a.stats.method == method) > 0
    assert any(one.stats.mean_batch > 4 for one in answers), "the requests were not in one batch"
    assert engine.load().drafter_failures == {}


@pytest.mark.parametrize("method", METHODS)
async def test_an_adapter_and_the_target_share_no_prefix(engine, prompts, method):
    prompt = (prompts[METHODS.index(method)] * 12)[:300]
    for adapter, scope in ((ADAPTER, "acme law"), (None, "acme")):
        asked = {"adapter": adapter, "scope": scope, "max_tokens": 2}
        first, again = [await decode(engine, method, prompt, **asked) for _ in range(2)]
        assert first.stats.cached_prompt_tokens == 0 < again.stats.cached_prompt_tokens
        own = set(prefix_hashes(prompt[:256], scope))
        await until(lambda own=own: own <= reported(engine))
        assert adapter is None or not set(prefix_hashes(prompt, "acme")) & reported(engine)


def reported(engine: Engine) -> set[bytes]:
    hashes = engine.load().prefixes
    return {hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("warp", "is not served; adapters: dora, law"),
        ("dora", r"lora_adapters\.dora: vLLM refuses"),
    ],
)
async def test_an_adapter_that_cannot_answer_ends_no_engine(engine, prompts, name, said):
    with pytest.raises(EngineRefusedError, match=said):
        await decode(engine, METHODS[0], prompts[0], adapter=name, max_tokens=2)
    assert (await decode(engine, METHODS[0], prompts[0], max_tokens=2)).finish == "length"
