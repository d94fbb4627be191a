"""How a stream's events are cut into pieces of the body."""

import json

import pytest
from asking import HELLO, Client
from observations import observation

from schemas import DecodeChunk

STATS = observation("", "draft_verify").stats


def chunk(request, text, finish=None):
    stats = STATS.model_copy(update={"request_id": request.request_id}) if finish else None
    name = request.request_id
    return DecodeChunk(request_id=name, text=text, finish_reason=finish, stats=stats)


async def three_chunks(request, _):
    yield chunk(request, "a")
    yield chunk(request, "b")
    yield chunk(request, "c", "stop")


async def pieces(ingress, path, asked):
    """The pieces of a stream's body that are not empty."""
    client = Client(ingress.app, path)
    client.send(json.dumps(asked).encode())
    await client.answered()
    return [piece for sent in client.sent if (piece := sent.get("body", b"").decode())]


STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CHAT = HELLO | STREAM
TEXT = {"model": "tiny", "prompt": "hello", "max_tokens": 8} | STREAM
INPUT = {"model": "tiny", "input": "hello", "stream": True}


@pytest.mark.parametrize(
    ("path", "asked", "begins", "ends"),
    [
        ("/v1/chat/completions", CHAT, '"role":"assistant"', '"usage":{'),
        ("/v1/completions", TEXT, '"text":"a"', '"usage":{'),
        ("/v1/responses", INPUT, "response.created", "response.completed"),
        ("/v1/messages", HELLO | {"stream": True}, "message_start", "message_stop"),
    ],
)
async def test_every_chunk_is_one_piece(ingress, path, asked, begins, ends):
    """With what begins the stream and what ends it."""
    for method in ingress.streams:
        ingress.streams[method] = three_chunks
    first, middle, last = await pieces(ingress, path, asked)
    assert begins in first
    assert '"a"' in first
    assert middle.count("data: ") == 1
    assert '"c"' in last
    assert ends in last
    assert last.endswith("data: [DONE]\n\n") == path.endswith("completions")


async def test_what_fails_after_the_last_chunk_is_no_error_of_the_answer(ingress):
    async def failing(request, _):
        yield chunk(request, "whole", "stop")
        raise RuntimeError("the replica is gone")

    ingress.streams |= dict.fromkeys(ingress.streams, failing)
    [only] = await pieces(ingress, "/v1/chat/completions", CHAT)
    assert '"content":"whole"' in only
    assert only.endswith("data: [DONE]\n\n")


async def test_a_conversation_is_known_before_the_client_has_its_last_piece(ingress):
    for method in ingress.streams:
        ingress.streams[method] = three_chunks
    kept = []
    remember = ingress.answerer._conversations.remember
    client = Client(ingress.app)

    def seen(*told):
        kept.append(len(client.sent))
        remember(*told)

    ingress.answerer._conversations.remember = seen
    client.send(json.dumps(CHAT).encode())
    await client.answered()
    # The start, two pieces; the third one, and the end of the body.
    assert kept == [3]
    assert len(client.sent) == 5
