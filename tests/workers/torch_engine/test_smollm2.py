"""SmolLM2 as it is imported: its tokens, its chat layout, and our forward beside Hugging Face's."""

import asyncio

import pytest
from conftest_bundle import DEMO
from decoding import assert_greedy, decode

from workers.bundle import load_bundle
from workers.chat_template import encode_chat, encode_text
from workers.end_tokens import end_tokens

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
