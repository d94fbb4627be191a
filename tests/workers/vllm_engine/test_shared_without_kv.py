"""A real vLLM engine whose methods have no KV of their own: our class is vLLM's proposer."""

import pytest
from decoding import assert_greedy, decode, decode_all, reference, vllm_cpu

from workers.vllm_engine.arguments import CPU_BLOCK

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

METHODS = ("vllm_naive", "vllm_ngram", "vllm_medusa")
TOKENS = 24
CONFIG = vllm_cpu(max_batch=8, max_context=256, kv_slots=4096)


async def test_each_method_drafts_and_all_say_the_same(engine, bundle, prompts):
    copied = [*prompts[0], *reference(bundle, prompts[0], TOKENS), *prompts[0]]
    answers = await decode_all(engine, [(m, copied) for m in METHODS], TOKENS)
    for answer in answers:
        assert_greedy(bundle, copied, answer.tokens, TOKENS, ignore_eos=True)
    plain, *drafting = (answer.stats for answer in answers)
    assert plain.drafted_tokens == 0
    assert all(stats.accepted_tokens > 0 for stats in drafting)


async def test_a_cached_prompt_is_not_padded_with_drafts(engine, prompts):
    """All but its last token is cached: vLLM would fill the step up to the longest draft."""
    prompt = (prompts[0] * 12)[: CPU_BLOCK + 1]
    for _ in range(2):
        answer = await decode(engine, "vllm_naive", prompt, max_tokens=4, ignore_eos=True)
        assert answer.stats.drafted_tokens == 0
