"""Short texts are tokenised where the requests are answered, long ones in a thread."""

import asyncio
import threading

import pytest
from asking import posted

from deployments.api import prompt_reader, tokenizers
from deployments.api.request_bodies import ChatRequest, CompletionRequest
from deployments.errors import ApiError
from deployments.guard.caller import Caller
from workers import chat_template
from workers.chat_template import encode_chat, encode_prompt

SHORT, LONG = "Write a function.", "Tell me about the sea and the mountains. " * 8


def messages(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def threads(monkeypatch):
    """Where each text is tokenised."""
    seen = []

    def noted(encode):
        def encoded(*args, **options):
            seen.append(threading.current_thread().name)
            return encode(*args, **options)

        return encoded

    monkeypatch.setattr(tokenizers, "SHORT_BYTES", 100)
    monkeypatch.setattr(prompt_reader, "encode_chat", noted(encode_chat))
    monkeypatch.setattr(prompt_reader, "encode_prompt", noted(encode_prompt))
    return seen


async def test_long_texts_are_tokenised_beside_the_event_loop(reader, threads):
    for text in (SHORT, LONG):
        await reader.chat(ChatRequest(model="tiny", messages=messages(text)), Caller())
        await reader.completion(CompletionRequest(model="tiny", prompt=text), Caller())
    here = threading.current_thread().name
    assert threads[:2] == [here, here]
    assert all(name.startswith("tokenise") for name in threads[2:])


@pytest.mark.usefixtures("threads")
async def test_both_at_once_give_the_tokens_that_one_gives(reader, tiny_bundle):
    asked = [SHORT, LONG] * 100
    chats = (
        reader.chat(ChatRequest(model="tiny", messages=messages(text)), Caller()) for text in asked
    )
    found = [prompt.token_ids for prompt in await asyncio.gather(*chats)]
    tokenizer = tiny_bundle.tokenizer()
    alone = {text: tuple(encode_chat(tokenizer, messages(text), True)) for text in (SHORT, LONG)}
    assert found == [alone[text] for text in asked]


async def test_a_users_words_are_text_and_a_completions_prompt_is_its_own_template(
    reader, tiny_bundle
):
    tokenizer = tiny_bundle.tokenizer()
    end = tokenizer.eos_token
    chat = await reader.chat(ChatRequest(model="tiny", messages=messages(f"a{end}")), Caller())
    blank = await reader.chat(ChatRequest(model="tiny", messages=messages("a")), Caller())
    ids = tokenizer.eos_token_id
    assert chat.token_ids.count(ids) == blank.token_ids.count(ids)
    [completion] = await reader.completion(
        CompletionRequest(model="tiny", prompt=f"a{end}b"), Caller()
    )
    assert completion.token_ids.count(ids) == 1


async def test_tokens_of_a_text_and_back(ingress, tiny_bundle):
    """With vLLM's bodies and answers."""
    tokenizer = tiny_bundle.tokenizer()
    text = f"naïve {tokenizer.eos_token}"
    said = await posted(ingress, "/tokenize", {"model": "tiny", "prompt": text})
    ids = tokenizer.encode(text)
    assert said == {"count": len(ids), "max_model_len": 512, "tokens": ids, "token_strs": None}
    said = await posted(ingress, "/tokenize", {"prompt": text, "return_token_strs": True})
    assert said["token_strs"] == tokenizer.convert_ids_to_tokens(ids)
    assert await posted(ingress, "/detokenize", {"tokens": ids}) == {"prompt": text}
    assert await posted(ingress, "/detokenize", {"tokens": []}) == {"prompt": ""}


async def test_tokens_of_a_conversation_are_those_of_its_prompt(ingress, reader):
    chat = messages(SHORT)
    said = await posted(ingress, "/tokenize", {"messages": chat})
    read = await reader.chat(ChatRequest(model="tiny", messages=chat), Caller())
    assert tuple(said["tokens"]) == read.token_ids
    shorter = await posted(ingress, "/tokenize", {"messages": chat, "add_generation_prompt": False})
    assert said["tokens"][: shorter["count"]] == shorter["tokens"]
    assert shorter["count"] < said["count"]


async def test_tools_beyond_any_context_are_not_tokenised(tools_reader, monkeypatch):
    def never(*_):
        raise AssertionError("tokenised")

    monkeypatch.setattr(chat_template, "encode_text", never)
    tool = {"type": "function", "function": {"name": "f", "description": "x" * 1_000_000}}
    asked = {"model": "tiny", "messages": messages("a"), "tools": [tool]}
    with pytest.raises(ApiError) as caught:
        await tools_reader.chat(ChatRequest.model_validate(asked), Caller())
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": messages("a")}, "prompt"),
        ("/tokenize", {"prompt": "a", "model": "gpt-4"}, "model"),
        (
            "/tokenize",
            {"messages": messages("a"), "add_special_tokens": True},
            "add_special_tokens",
        ),
        ("/tokenize", {"messages": messages("a"), "chat_template": "x"}, "chat_template"),
        ("/tokenize", {"prompt": "x" * 1_900_000}, "prompt"),
        ("/tokenize", {"messages": messages("x" * 1_900_000)}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [2**40]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [5] * 513}, "tokens"),
    ],
)
async def test_what_has_no_tokens_is_refused(ingress, path, asked, param):
    response = await ingress.http.post(path, json=asked)
    assert response.status_code in (400, 404)
    assert response.json()["error"]["param"] == param
