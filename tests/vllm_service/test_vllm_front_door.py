"""vLLM's own server, started by `specadapt vllm serve`, asked with the OpenAI client."""

import asyncio
import re
from collections import Counter

import openai
import pytest
from conftest_bundle import DEMO
from decoding import assert_greedy
from running_service import HTTP
from vllm_server import ready, vllm_serving

from workers.bundle import load_bundle
from workers.chat_template import encode_chat

pytestmark = pytest.mark.vllm

METHODS = ("naive", "ngram", "suffix", "medusa", "eagle3", "adaptive")
TOKENS = 24
FLAGS = ["--dtype", "float32", "--enforce-eager", "--max-model-len", "384", "--max-num-seqs", "16"]
FLAGS += ["--max-num-batched-tokens", "256"]
CALL_SECONDS = 120.0


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(DEMO)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server with all drafters that need no draft model; its processes end with the module."""
    with vllm_serving(tmp_path_factory, "ngram,suffix,medusa,eagle3", FLAGS) as (url, server):
        ready(url, server)
        yield url


@pytest.fixture(scope="module")
def prompts(bundle):
    tokenizer = bundle.tokenizer()
    texts = ("Write a Python function", "Say it twice: a b c d a b c d", "What is 2 + 2?")
    return [
        encode_chat(tokenizer, [{"role": "user", "content": text}], add_generation_prompt=True)
        for text in texts
    ]


def ask(url, jobs, **fields):
    """Complete prompts (token ids), each with its method, all at once."""

    async def all_of_them():
        async with openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="none", timeout=CALL_SECONDS, max_retries=0
        ) as client:
            return await asyncio.gather(*(one(client, *job) for job in jobs))

    async def one(client, method, prompt):
        named = {} if method is None else {"vllm_xargs": {"specadapt_method": method}}
        extra = {"ignore_eos": True, "return_token_ids": True, **named, **fields}
        return await client.completions.create(
            model="demo", prompt=prompt, temperature=0, max_tokens=TOKENS, extra_body=extra
        )

    return asyncio.run(all_of_them())


def metrics(url):
    """The counters of /metrics: `name`, or `name method drafter`."""
    found = Counter()
    text = HTTP.get(f"{url}/metrics").text
    pattern = r"(?m)^(specadapt_\w+|vllm:spec_decode_num_\w+)_total\{(.*)\} (\S+)$"
    for name, labels, value in re.findall(pattern, text):
        of = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[" ".join(filter(None, (name, of.get("method"), of.get("drafter"))))] += float(value)
    return found


def test_methods_share_a_batch_and_answer_as_plain_decoding_does(url, bundle, prompts):
    before = metrics(url)
    jobs = [(method, prompt) for prompt in prompts for method in (*METHODS, None)]
    answers = ask(url, jobs)
    for (_, prompt), answer in zip(jobs, answers, strict=True):
        tokens = answer.choices[0].token_ids
        assert_greedy(bundle, prompt, tokens, TOKENS, ignore_eos=True)
    counted = metrics(url) - before
    for method in ("ngram", "suffix", "medusa", "eagle3"):
        assert counted[f"specadapt_draft_tokens {method} {method}"] > 0, method
    by_adaptive = [n for n in counted if n.startswith("specadapt_draft_tokens adaptive")]
    assert by_adaptive, "requests that name no method are adaptive"
    assert not [name for name in counted if " naive " in name]
    for ours, its in (
        ("specadapt_drafts", "vllm:spec_decode_num_drafts"),
        ("specadapt_draft_tokens", "vllm:spec_decode_num_draft_tokens"),
        ("specadapt_accepted_tokens", "vllm:spec_decode_num_accepted_tokens"),
    ):
        assert sum(n for name, n in counted.items() if name.startswith(ours)) == counted[its] > 0


def test_an_unknown_method_is_a_400_and_harms_no_other_request(url, prompts):
    running = [("eagle3", prompts[0]), (None, prompts[1])]
    for method in ("magic", ["eagle3"]):
        with pytest.raises(openai.BadRequestError, match="methods: naive, ngram, suffix, medusa"):
            ask(url, [*running, (method, prompts[2])])
    assert len(ask(url, running)) == 2
    body = {"model": "demo", "prompt": "a", "stream": True, "vllm_xargs": {"specadapt_x": 1}}
    refused = HTTP.post(f"{url}/v1/completions", json=body)
    assert refused.status_code == 400
    assert "vllm_xargs.specadapt_x is unknown" in refused.json()["error"]["message"]
