"""A real vLLM engine whose requests choose a LoRA adapter or none, in float32 against Hugging Face
with the adapter's weights merged."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from decoding import assert_greedy, decode, reported, until, vllm_cpu
from random_adapter import save_adapter
from spoiling import fields

from schemas.prefixes import prefix_hashes
from workers.bundle import Bundle
from workers.engine import Engine, EngineRefusedError
from workers.loader import load_engine

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="module")]

ADAPTER = "law"
PLAIN = "vllm_naive"
SHARED = (PLAIN, "vllm_ngram", "vllm_suffix", "vllm_medusa", "vllm_eagle3", "vllm_draft")
SHARED += ("vllm_adaptive",)
ALONE = pytest.param(("vllm_eagle3",), marks=pytest.mark.slow)
TOKENS = 24


@pytest.fixture(scope="module", params=[SHARED, ALONE], ids=["shared", "alone"])
def methods(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The methods of one engine."""
    return request.param


@pytest.fixture(scope="module")
def folder(bundle: Bundle, methods: tuple[str, ...], tmp_path_factory: Any) -> Path:
    """An adapter that vLLM does not load yet, and the target that it makes; for each engine."""
    made = tmp_path_factory.mktemp(methods[0])
    merged = save_adapter(bundle.part("target"), made / ADAPTER, use_dora=True)
    merged.save_pretrained(made / "merged")
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(bundle: Bundle, folder: Path, methods: tuple[str, ...]) -> AsyncIterator[Engine]:
    config = vllm_cpu(
        max_batch=8, max_context=384, kv_slots=4096, lora_adapters={ADAPTER: folder / ADAPTER}
    )
    loaded = load_engine(methods, bundle, config)
    yield loaded
    loaded.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def refusal(engine: Engine, folder: Path, methods: tuple[str, ...]) -> str:
    """What the engine says while the adapter does not load. Then its file is mended.

    A second adapter that does not load would leave a place of the engine's empty: the last, which
    vLLM's broken kernels add to the target's rows.
    """
    with pytest.raises(EngineRefusedError) as refused:
        await decode(engine, methods[0], [1, 2, 3], adapter=ADAPTER, max_tokens=2)
    fields("adapter_config.json", use_dora=False)(folder / ADAPTER)
    return str(refused.value)


async def test_a_batch_holds_answers_of_the_target_and_of_an_adapter(
    engine, bundle, folder, prompts, methods
):
    merged = replace(bundle, parts=bundle.parts | {"target": str(folder / "merged")})
    jobs = [(m, one, ids) for m in methods for ids in prompts[:4] for one in (None, ADAPTER)]
    answers = await asyncio.gather(
        *(
            decode(engine, method, ids, adapter=adapter, max_tokens=TOKENS, ignore_eos=True)
            for method, adapter, ids in jobs
        )
    )
    for (_, adapter, ids), one in zip(jobs, answers, strict=True):
        assert_greedy(merged if adapter else bundle, ids, one.tokens, TOKENS, ignore_eos=True)
    plain, adapted = answers[0::2], answers[1::2]
    assert sum(a.tokens != b.tokens for a, b in zip(plain, adapted, strict=True)) >= len(jobs) / 4
    for answers_of in (plain, adapted):
        for method in set(methods) - {PLAIN}:
            assert sum(a.stats.accepted_tokens for a in answers_of if a.stats.method == method) > 0
    assert any(one.stats.mean_batch > 4 for one in answers), "the requests were not in one batch"
    assert engine.load().drafter_failures == {}


async def test_an_adapter_and_the_target_share_no_prefix(engine, prompts, methods):
    for method, ids in zip(methods, prompts, strict=False):
        prompt = (ids * 300)[:300]
        for adapter, scope in ((ADAPTER, "acme law"), (None, "acme")):
            asked = {"adapter": adapter, "scope": scope, "max_tokens": 2}
            first, again = [await decode(engine, method, prompt, **asked) for _ in range(2)]
            assert first.stats.cached_prompt_tokens == 0 < again.stats.cached_prompt_tokens
            own = set(prefix_hashes(prompt[:256], scope))
            await until(lambda own=own: own <= reported(engine))
            assert adapter is None or not set(prefix_hashes(prompt, "acme")) & reported(engine)


async def test_an_adapter_that_cannot_answer_ends_no_engine(engine, prompts, methods, refusal):
    assert refusal.startswith(f"engine.lora_adapters.{ADAPTER}: vLLM refuses it: ")
    with pytest.raises(EngineRefusedError, match=f"is not served; adapters: {ADAPTER}"):
        await decode(engine, methods[0], prompts[0], adapter="warp", max_tokens=2)
    for adapter in (None, ADAPTER):
        answer = await decode(engine, methods[0], prompts[0], adapter=adapter, max_tokens=2)
        assert answer.finish == "length"
