"""Seven methods in one real vLLM engine: each request has its own drafter and the plain answer."""

import asyncio
from collections.abc import Sequence

import pytest
from decoding import Answer, assert_greedy, decode, decode_all, reported, until
from engine_config import CONFIG

from schemas.prefixes import prefix_hashes
from workers.methods import get_method

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="package")]

PLAIN = "vllm_naive"
WITH_KV = ("vllm_eagle3", "vllm_eagle", "vllm_draft")
METHODS = (PLAIN, "vllm_ngram", "vllm_suffix", "vllm_medusa", *WITH_KV)
TOKENS = 24


async def answers(engine, jobs: Sequence[tuple[str, list[int]]]) -> list[Answer]:
    return await decode_all(engine, jobs, TOKENS)


def drafted(answers: Sequence[Answer]) -> int:
    return sum(a.stats.drafted_tokens for a in answers)


def accepted(answers: Sequence[Answer]) -> int:
    return sum(a.stats.accepted_tokens for a in answers)


async def test_methods_share_a_batch_and_draft_as_they_do_alone(engine, bundle, prompts):
    prompts = prompts[:4]
    alone = {m: await answers(engine, [(m, ids) for ids in prompts]) for m in METHODS}
    jobs = [(m, ids) for ids in prompts for m in METHODS]
    mixed = await answers(engine, jobs)
    for (method, ids), one in zip(jobs, mixed, strict=True):
        assert_greedy(bundle, ids, one.tokens, TOKENS, ignore_eos=True)
        assert one.stats.method == method
    assert any(one.stats.mean_batch > 4 for one in mixed), "the requests were not in one batch"
    for row, method in enumerate(METHODS):
        together, own = mixed[row :: len(METHODS)], alone[method]
        if method == PLAIN:
            assert drafted(together) == 0, "plain decoding was given something to verify"
            continue
        gamma = get_method(method).settings["stop"]["gamma"]
        assert all(a.stats.drafted_tokens <= gamma * a.stats.target_steps for a in together)
        if method == "vllm_suffix":
            assert accepted(together) > 0.5 * drafted(together) > 0, "the answers were known"
        else:
            # Another row's hidden states, KV or tokens would change what is drafted.
            assert drafted(together) == pytest.approx(drafted(own), rel=0.03)
            assert accepted(together) == pytest.approx(accepted(own), rel=0.03)
        assert accepted(own) > (0.12 if method in WITH_KV else 0.01) * drafted(own)


async def test_a_drafters_kv_is_not_taken_from_another_methods_prompt(engine, prompts):
    """Prompts that begin alike are cached in blocks; a plain request leaves no drafter's KV."""
    prompt = [*(prompts[2] * 12)[:300], *prompts[3][:20]]
    [plain] = await answers(engine, [(PLAIN, prompt)])
    [lookup] = await answers(engine, [("vllm_ngram", prompt)])
    assert lookup.stats.cached_prompt_tokens > 0, "what needs no KV shares what is cached"
    for method in ("vllm_eagle3", "vllm_draft"):
        [cold] = await answers(engine, [(method, prompt)])
        [warm] = await answers(engine, [(method, prompt)])
        assert plain.tokens == cold.tokens == warm.tokens
        assert cold.stats.cached_prompt_tokens == 0 < warm.stats.cached_prompt_tokens
        assert accepted([cold]) == pytest.approx(accepted([warm]), abs=1)


async def test_a_cached_prompt_is_reported_under_its_scope(engine, prompts):
    prompt = [*(prompts[2] * 12)[:300], *prompts[1][:20]]
    for method, scope in (("vllm_eagle3", "acme"), (PLAIN, "")):
        await decode(engine, method, prompt, max_tokens=1, scope=scope)
        cached = set(prefix_hashes(prompt[:256], scope))
        await until(lambda cached=cached: cached <= reported(engine))
    assert not set(prefix_hashes(prompt, "another")) & reported(engine)


async def test_another_scopes_prompt_is_read_anew(engine, prompts):
    prompt = [*(prompts[1] * 12)[:300], *prompts[0][:20]]
    for expected in (False, True):
        for scope in ("a", "b"):
            for method in ("vllm_ngram", "vllm_eagle3"):
                answer = await decode(engine, method, prompt, scope=scope, max_tokens=4)
                assert (answer.stats.cached_prompt_tokens > 0) == expected


async def test_a_closed_stream_disturbs_nobody(engine, prompts):
    """Rows move when one leaves; the others' drafts go with them."""
    jobs = [(m, prompts[3]) for m in METHODS]
    before = await answers(engine, jobs)
    left = [
        decode(engine, m, prompts[4], max_tokens=200, stop_after=3 + row, ignore_eos=True)
        for row, m in enumerate(METHODS)
    ]
    *gone, after = await asyncio.gather(*left, answers(engine, jobs))
    assert all(len(one.tokens) < 30 for one in gone)
    for method, old, new in zip(METHODS, before, after, strict=True):
        assert new.tokens == before[0].tokens
        if method in WITH_KV:
            assert accepted([new]) == pytest.approx(accepted([old]), abs=1)


async def test_the_end_of_the_context_stops_one_sequences_drafts_only(engine, prompts):
    long = (prompts[0] * 12)[: CONFIG.max_context - TOKENS]
    jobs = [("vllm_draft", long), *((m, prompts[2]) for m in METHODS)]
    full, plain, *others = await answers(engine, jobs)
    assert len(full.tokens) == TOKENS
    assert drafted([plain]) == 0
    for method, one in zip(METHODS[1:], others, strict=True):
        assert one.tokens == plain.tokens
        if method in WITH_KV:
            assert accepted([one]) > 0
