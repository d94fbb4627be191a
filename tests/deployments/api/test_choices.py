"""Several choices and log probabilities over HTTP, in the shapes the openai package reads."""

import asyncio
import json

from asking import events, posted, until

from deployments.api import replies
from deployments.api.logprobs import ChatLogprobs, CompletionLogprobs
from schemas import DecodeChunk, TokenLogprobs
from workers.text import TokenText

CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 12,
    "ignore_eos": True,
}
TEXT = {"model": "tiny", "prompt": "hello", "max_tokens": 12, "ignore_eos": True}


async def test_choices_have_seeds_of_their_own_and_repeat(ingress):
    asked = CHAT | {"n": 3, "seed": 7}
    first = await posted(ingress, "/v1/chat/completions", asked)
    again = await posted(ingress, "/v1/chat/completions", asked)
    alone = await posted(ingress, "/v1/chat/completions", CHAT | {"seed": 7})
    texts = [choice["message"]["content"] for choice in first["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [choice["message"]["content"] for choice in again["choices"]]
    assert texts[0] == alone["choices"][0]["message"]["content"]
    assert first["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    assert first["usage"]["completion_tokens"] == 36
    assert first["usage"]["speculative"]["target_steps"] >= 3
    assert ingress.link.waiting == 7


async def test_a_client_that_leaves_cancels_every_choice(ingress, steps):
    steps.held = lambda batch: len(batch) == 3
    long = CHAT | {"n": 3, "max_tokens": 400, "stream": True}
    asked = asyncio.create_task(ingress.http.post("/v1/chat/completions", json=long))
    await until(steps.holding.is_set)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    steps.free.set()
    await until(lambda: ingress.engine.load().running == 0)


async def test_chat_logprobs(openai_client):
    asked = {k: v for k, v in CHAT.items() if k != "ignore_eos"}
    asked |= {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    whole = await openai_client.chat.completions.create(**asked, extra_body={"ignore_eos": True})
    content = whole.choices[0].logprobs.content
    said = b"".join(bytes(token.bytes) for token in content)
    assert said.decode(errors="replace").startswith(
        whole.choices[0].message.content.rstrip("\ufffd")
    )
    for token in content:
        assert len(token.top_logprobs) == 2
        assert token.logprob == token.top_logprobs[0].logprob <= 0.0
        assert token.token == token.top_logprobs[0].token
        assert token.top_logprobs[1].logprob <= token.logprob
    streamed = []
    async for chunk in await openai_client.chat.completions.create(
        **asked, extra_body={"ignore_eos": True}, stream=True
    ):
        logprobs = chunk.choices[0].logprobs
        streamed += [] if logprobs is None else logprobs.content
    assert [token.token for token in streamed] == [token.token for token in content]


async def test_completion_logprobs(ingress):
    asked = TEXT | {"temperature": 0, "logprobs": 2}
    [choice] = (await posted(ingress, "/v1/completions", asked))["choices"]
    logprobs = choice["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert len({len(values) for values in logprobs.values()}) == 1
    for token, value, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert top[token] == value == max(top.values())
        assert 1 <= len(top) <= 3
    lengths = [len(token) for token in logprobs["tokens"]]
    assert logprobs["text_offset"] == [sum(lengths[:i]) for i in range(len(lengths))]
    response = await ingress.http.post("/v1/completions", json=asked | {"stream": True})
    pieces = [json.loads(event)["choices"][0]["logprobs"] for event in events(response)[:-1]]
    offsets = [offset for piece in pieces if piece for offset in piece["text_offset"]]
    assert offsets == logprobs["text_offset"]


async def test_an_answer_without_a_visible_token_has_empty_logprobs(ingress):
    end = ingress.reader.tokenizers.own.eos_token_id
    wishes = {"logit_bias": {str(end): 100}, "temperature": 0, "ignore_eos": False}
    for path, asked, empty in (
        ("/v1/chat/completions", CHAT | {"logprobs": True}, {"content": [], "refusal": None}),
        (
            "/v1/completions",
            TEXT | {"logprobs": 0},
            {key: [] for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")},
        ),
    ):
        [choice] = (await posted(ingress, path, asked | wishes))["choices"]
        assert choice["finish_reason"] == "stop"
        assert choice["logprobs"] == empty
        response = await ingress.http.post(path, json=asked | wishes | {"stream": True})
        said = [json.loads(event)["choices"][0] for event in events(response)[:-1]]
        assert [one["logprobs"] for one in said if one["logprobs"] is not None] == [empty]
        assert said[-1]["finish_reason"] == "stop"


def test_tokens_have_their_own_bytes(tiny_bundle):
    tokenizer = tiny_bundle.tokenizer()
    tokens = TokenText(tokenizer)
    for text in ("hello there", "naïve 😀", "x = {1: 2}\n"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(tokens.raw(i) for i in ids) == text.encode()
    end = tokenizer.eos_token_id
    assert tokens.is_special(end)
    assert tokens.text(end) == tokenizer.eos_token
    assert tokens.raw(10**6) == b""


async def test_a_tokens_text_is_made_once_however_often_it_is_named(ingress, monkeypatch):
    tokens, made = ingress.reader.token_text, []
    text = TokenText.text

    def noted(self, token):
        made.append(token)
        return text(self, token)

    monkeypatch.setattr(TokenText, "text", noted)
    said = TokenLogprobs(chosen=-1.0, top=tuple((token, -1.0) for token in range(200, 220)))
    chunk = DecodeChunk(
        request_id="one",
        text="",
        token_ids=(200,) * 50,
        drafted=(False,) * 50,
        logprobs=(said,) * 50,
    )
    [*entries] = ChatLogprobs(tokens, hides_special=False).of(chunk)["content"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [20] * 50
    assert len(made) == len(set(made))


async def test_other_responses_go_on_between_the_log_probabilities_of_two_choices(
    ingress, monkeypatch
):
    turns, written = [0], []

    async def turn():
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    async def at_once(answers):
        yield [one async for arrived in interleaved(answers) for one in arrived]

    def noted(self, chunk):
        written.append(turns[0])
        return of(self, chunk)

    interleaved, of = replies.interleaved, ChatLogprobs.of
    monkeypatch.setattr(replies, "interleaved", at_once)
    monkeypatch.setattr(ChatLogprobs, "of", noted)
    turning = asyncio.create_task(turn())
    await posted(ingress, "/v1/chat/completions", CHAT | {"n": 3, "logprobs": True})
    turning.cancel()
    assert len(written) == len(set(written)) >= 3


CHARACTERS = "a😀é你b"


def test_offsets_are_within_the_text_and_parts_of_characters_stay_apart(tiny_bundle):
    tokenizer = tiny_bundle.tokenizer()
    ids = tokenizer.encode(CHARACTERS, add_special_tokens=False)
    tokens = TokenText(tokenizer)
    parts = [token for token in ids if "\ufffd" in tokens.text(token)]
    assert len(set(parts)) > 2
    top = tuple((token, -1.0 - n) for n, token in enumerate(dict.fromkeys(parts)))
    said = tuple(TokenLogprobs(chosen=-9.0, top=top) for _ in ids)
    chunk = DecodeChunk(request_id="1", text=CHARACTERS, token_ids=tuple(ids), logprobs=said)
    written = CompletionLogprobs(tokens).of(chunk)
    assert written["text_offset"] == sorted(written["text_offset"])
    assert written["text_offset"][-1] == len(CHARACTERS) - 1
    assert written["tokens"][1].startswith("bytes:\\x")
    for token, alternatives in zip(written["tokens"], written["top_logprobs"], strict=True):
        assert len(alternatives) >= len(top)
        assert alternatives[token] in (-9.0, *dict(top).values())
