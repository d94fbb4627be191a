"""What a stream says, in which pieces, and while nothing comes. Replicas wait for pings."""

import asyncio
import json

import anthropic
import httpx
import httpx2
import openai
import pytest
from asking import HELLO, Client, chunk, until

from deployments.api import event_stream

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
TEXT_BODY = {"model": "tiny", "prompt": "hello", "max_tokens": 8}
ASKED = {
    CHAT: HELLO | {"stream": True},
    TEXT: TEXT_BODY | {"stream": True},
    RESPONSES: {"model": "tiny", "input": "hello", "stream": True},
    MESSAGES: HELLO | {"stream": True},
}
PINGS = dict.fromkeys(ASKED, event_stream.COMMENT)
PINGS[MESSAGES] = 'event: ping\ndata: {"type":"ping"}\n\n'
TOLD = {"method": "draft_verify", "cluster": 0, "reason": "preferred"}


class Service:
    """An ingress whose methods answer "ab", with two pings before each of both chunks."""

    def __init__(self, ingress):
        self.ingress, self.pings, self.failure, self.waits = ingress, 0, None, True
        self.began, self.closed = asyncio.Event(), asyncio.Event()
        ingress.streams |= dict.fromkeys(ingress.streams, self._replica)

    async def __call__(self, scope, receive, send):
        async def counted(message):
            await send(message)
            self.pings += message.get("body", b"").decode() == PINGS[scope["path"]]

        await self.ingress.app(scope, receive, counted)

    async def _replica(self, request, _):
        self.began.set()
        try:
            await self._two_pings()
            if self.failure is not None:
                raise self.failure
            yield chunk(request, "a")
            await self._two_pings()
            yield chunk(request, "b", "stop")
        finally:
            self.closed.set()

    async def _two_pings(self):
        before = self.pings
        await until(lambda: self.pings >= before + 2 or not self.waits)

    def ask(self, path, **more):
        client = Client(self, path, **more)
        client.send(json.dumps(ASKED[path]).encode())
        return client

    def openai(self):
        http = httpx.AsyncClient(transport=httpx.ASGITransport(self))
        return openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=http)

    def anthropic(self):
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self))
        return anthropic.AsyncAnthropic(base_url="http://test", api_key="none", http_client=http)


@pytest.fixture
def service(ingress, monkeypatch):
    monkeypatch.setattr(event_stream, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(event_stream, "LATER_SECONDS", 0.001)
    return Service(ingress)


def events(client, path):
    """The data of a stream's events, without pings."""
    parts = [part for part in client.body.decode().split("\n\n") if part]
    said = [part for part in parts if f"{part}\n\n" != PINGS[path]]
    return [json.loads(p.split("data: ")[1]) for p in said if p != "data: [DONE]"]


@pytest.mark.parametrize("path", ASKED)
async def test_a_stream_that_waits_begins_without_the_method_and_names_it_later(service, path):
    client = await service.ask(path).answered()
    assert client.status == 200
    assert not [name for name in client.headers if name.startswith("x-specadapt")]
    pieces = [message["body"].decode() for message in client.sent[1:]]
    first = next(index for index, piece in enumerate(pieces) if piece != PINGS[path])
    assert first >= 2
    later = pieces[first + 1 :]
    assert PINGS[path] in later, "it pings in the middle, too"
    said, *others = events(client, path)
    assert said["specadapt"]["method"] in service.ingress.streams
    assert said["specadapt"].keys() == TOLD.keys()
    assert not [one for one in others if "specadapt" in one]


@pytest.mark.parametrize("path", ASKED)
async def test_a_stream_whose_first_chunk_comes_soon_has_the_method_in_its_headers(ingress, path):
    service = Service(ingress)
    service.waits = False
    client = await service.ask(path).answered()
    assert client.headers["x-specadapt-method"] in ingress.streams
    assert PINGS[path] not in client.body.decode()
    assert not [one for one in events(client, path) if "specadapt" in one]


@pytest.mark.parametrize("path", ASKED)
async def test_an_error_of_a_stream_that_has_begun_is_an_event(service, path):
    service.failure = RuntimeError("broken on purpose")
    client = await service.ask(path).answered()
    assert client.status == 200
    last = events(client, path)[-1]
    error = last["response"]["error"] if path == RESPONSES else last["error"]
    assert "failed" in error["message"]
    kinds = {RESPONSES: "response.failed", MESSAGES: "error"}
    assert last.get("type") == kinds.get(path)


@pytest.mark.parametrize("path", ASKED)
async def test_a_client_that_leaves_while_it_waits_ends_the_work(service, path):
    client = service.ask(path, version="2.3")
    await service.began.wait()
    await until(lambda: service.pings)
    client.leave()
    await client.answered()
    await until(service.closed.is_set)


async def test_a_request_that_is_cancelled_before_the_headers_ends_the_work(service, monkeypatch):
    monkeypatch.setattr(event_stream, "FIRST_SECONDS", 3600.0)
    client = service.ask(CHAT)
    await service.began.wait()
    client.task.cancel()
    await asyncio.wait([client.task])
    assert service.closed.is_set()


@pytest.mark.parametrize("waits", [True, False])
async def test_a_client_that_is_gone_before_the_headers_ends_the_work(service, monkeypatch, waits):
    """The body has not begun then."""
    if not waits:
        monkeypatch.setattr(event_stream, "FIRST_SECONDS", 3600.0)
        service.waits = False

    async def gone(_client, _message):
        await service.began.wait()
        raise OSError("gone")

    monkeypatch.setattr(Client, "__call__", gone)
    await asyncio.wait([service.ask(CHAT).task])
    assert service.closed.is_set()


async def test_the_openai_package_takes_it(service):
    client = service.openai()
    chunks = [one async for one in await client.chat.completions.create(**ASKED[CHAT])]
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "ab"
    assert chunks[0].specadapt["method"] in service.ingress.streams
    texts = [one async for one in await client.completions.create(**ASKED[TEXT])]
    assert "".join(one.choices[0].text for one in texts) == "ab"
    said = [one async for one in await client.responses.create(**ASKED[RESPONSES])]
    assert said[-1].response.output_text == "ab"
    assert said[0].specadapt["method"] in service.ingress.streams


async def test_the_anthropic_package_takes_it(service):
    client = service.anthropic()
    async with client.messages.stream(**HELLO) as stream:
        final = await stream.get_final_message()
    assert final.content[0].text == "ab"
    service.failure = RuntimeError("broken on purpose")
    with pytest.raises(anthropic.APIStatusError, match="failed"):
        async with client.messages.stream(**HELLO) as stream:
            await stream.get_final_message()


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
CHAT_STREAM = HELLO | STREAM
TEXT_STREAM = {"model": "tiny", "prompt": "hello", "max_tokens": 8} | STREAM
INPUT = {"model": "tiny", "input": "hello", "stream": True}


@pytest.mark.parametrize(
    ("path", "asked", "begins", "ends"),
    [
        ("/v1/chat/completions", CHAT_STREAM, '"role":"assistant"', '"usage":{'),
        ("/v1/completions", TEXT_STREAM, '"text":"a"', '"usage":{'),
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
    [only] = await pieces(ingress, "/v1/chat/completions", CHAT_STREAM)
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
    client.send(json.dumps(CHAT_STREAM).encode())
    await client.answered()
    # The start, two pieces; the third one, and the end of the body.
    assert kept == [3]
    assert len(client.sent) == 5
