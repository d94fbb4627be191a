"""A real vLLM engine that drafts less in larger batches, in float32 against Hugging Face."""

import asyncio

import pytest
from decoding import assert_greedy, decode

from schemas import EngineConfig, VllmConfig
from workers.methods import get_method

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

METHOD, TOKENS = "vllm_draft", 40
SCHEDULED = get_method(METHOD).model_copy(
    update={
        "stop": "batch_schedule",
        "settings": {"stop": {"batches": (1, 2, 4), "gammas": (3, 1, 0)}},
    }
)
METHODS = (SCHEDULED,)
CONFIG = EngineConfig(
    device="cpu",
    dtype="float32",
    max_batch=6,
    max_context=512,
    kv_slots=4096,
    prefix_cache=False,
    vllm=VllmConfig(enforce_eager=True),
)


async def test_the_batch_says_how_much_is_drafted(engine, bundle, prompts):
    """Six at once draft next to nothing, those that outlive the others draft again, and one alone
    drafts three tokens in every step; all say what the target says."""
    lengths = [TOKENS, TOKENS, *[TOKENS // 2] * 4]
    crowd = await asyncio.gather(
        *(
            decode(engine, METHOD, ids, max_tokens=length, ignore_eos=True)
            for ids, length in zip(prompts[:6], lengths, strict=True)
        )
    )
    alone = await decode(engine, METHOD, prompts[0], max_tokens=TOKENS, ignore_eos=True)
    for ids, answer in zip([*prompts[:6], prompts[0]], [*crowd, alone], strict=True):
        assert_greedy(bundle, ids, answer.tokens, len(answer.tokens), ignore_eos=True)
    short = [answer.stats for answer in crowd[2:]]
    drafted = sum(stats.drafted_tokens for stats in short)
    assert drafted < 0.2 * sum(stats.target_steps for stats in short)
    outliving = crowd[0].stats
    assert outliving.drafted_tokens > outliving.target_steps / 4
    assert max(len(answer.stats.drafted_by_position) for answer in crowd) <= 3
    # the prefill's step, and the last one where no token is left to be drafted
    assert alone.stats.target_steps - alone.stats.drafted_by_position[0] <= 3
    assert len(set(alone.stats.drafted_by_position)) == 1
    assert len(alone.stats.drafted_by_position) == 3
