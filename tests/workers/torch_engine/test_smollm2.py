"""SmolLM2 as it is imported: its tokens, its chat layout, and our forward beside Hugging Face's."""

import asyncio

import pytest
from conftest_bundle import DEMO
from decoding import assert_greedy, decode

from schemas import EngineConfig
from workers.bundle import load_bundle
from workers.chat_template import encode_chat, encode_text
from workers.end_tokens import end_tokens
from workers.loader import load_engine

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
    assert end_tokens(bundle.part("target"), tokenizer) == {tokenizer.eos_token_id}
    assert tokenizer.eos_token == "<|im_end|>"


def test_answers_are_hugging_faces_token_for_token(bundle):
    config = EngineConfig(dtype="float32", threads=1, max_context=256, kv_slots=1024)
    prompts = [asked(bundle, question) for question in QUESTIONS]

    async def answers():
        engine = load_engine(["naive", "ngram"], bundle, config)
        try:
            return await asyncio.gather(
                *(
                    decode(engine, method, prompt, max_tokens=24)
                    for prompt in prompts
                    for method in ("naive", "ngram")
                )
            )
        finally:
            engine.close()

    found = asyncio.run(answers())
    for index, answer in enumerate(found):
        assert assert_greedy(bundle, prompts[index // 2], answer.tokens, 24)
    assert "Bananas" in found[0].text
