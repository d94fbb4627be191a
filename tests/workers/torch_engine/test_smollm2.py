"""SmolLM2 as it is imported: its tokens, its chat layout, and our forward beside Hugging Face's."""

import asyncio

import pytest
from conftest_bundle import DEMO
from decoding import assert_greedy, decode

from schemas import MethodSpec
from workers.bundle import load_bundle
from workers.chat_template import encode_chat, encode_text
from workers.end_tokens import end_tokens
from workers.methods import METHODS
from workers.portfolio import decodable, method_of

FOLDER = DEMO.parent / "smollm2"
QUESTIONS = ("Name three fruits.", "What is 12 + 30?", "Say the word echo twice: echo echo")


@pytest.fixture(scope="module")
def bundle():
    found = load_bundle(FOLDER)
    if not found.has("target"):
        pytest.skip("SmolLM2 is not imported here: `specadapt bundle import bundles/smollm2`")
    return found


def asked(bundle, question):
    return encode_chat(bundle.tokenizer(), [{"role": "user", "content": question}], True)


def test_digits_stand_alone_and_the_system_prompt_is_the_templates(bundle):
    tokenizer = bundle.tokenizer()
    words = tokenizer.convert_ids_to_tokens(encode_text(tokenizer, "in 2024, 12.5"))
    assert [word for word in words if word.isdigit()] == list("2024125")
    text = tokenizer.decode(asked(bundle, "Hello"))
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )
    assert end_tokens(bundle) == {tokenizer.eos_token_id}
    assert tokenizer.eos_token == "<|im_end|>"


async def test_answers_are_hugging_faces_token_for_token(load_engine, bundle):
    engine = load_engine(["naive", "ngram"], bundle)
    prompts = [asked(bundle, question) for question in QUESTIONS[:2]]
    jobs = [(method, prompt) for prompt in prompts for method in ("naive", "ngram")]
    found = await asyncio.gather(*(decode(engine, m, ids, max_tokens=12) for m, ids in jobs))
    for (_, prompt), answer in zip(jobs, found, strict=True):
        assert assert_greedy(bundle, prompt, answer.tokens, 12)
    assert "Bananas" in found[0].text


def lossless(bundle) -> list[MethodSpec]:
    """Of our own engine, as the bundle has tuned them."""
    specs = [method_of(name, bundle) for name in METHODS]
    return [s for s in specs if s.lossless and s.engine == "torch" and decodable(s, bundle)]


@pytest.mark.slow
async def test_every_lossless_method_says_what_hugging_face_says(load_engine, bundle):
    """Alone, and all of them in one batch; past answers are known by then."""
    specs = lossless(bundle)
    assert {"naive", "suffix", "adaptive", "ngram"} <= {spec.name for spec in specs}
    engine = load_engine(specs, bundle, kv_slots=256 * 16, max_batch=16)
    found = list[bool]()
    for prompt in (asked(bundle, question) for question in QUESTIONS):
        jobs = [decode(engine, spec.name, prompt, max_tokens=48) for spec in specs]
        alone = [await job for job in jobs[:: len(jobs) - 1]]
        for answer in [*alone, *await asyncio.gather(*jobs[1:-1])]:
            found.append(assert_greedy(bundle, prompt, answer.tokens, 48))
    assert len(found) == len(specs) * len(QUESTIONS)
    assert sum(found) >= len(found) - len(specs), "near-ties are rare"
