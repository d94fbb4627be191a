"""How tests ask an ingress: prompts, answers and events of a stream, replicas that break."""

import asyncio
import json
import time
from contextlib import aclosing

from observations import observation

from deployments.request.prompt import Prompt
from schemas import DecodeChunk, SamplingParams

HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


class Clock:
    """A clock that stands until a test moves it."""

    now = 100.0

    def __call__(self):
        return self.now


class Counted:
    """A counter that keeps the tags it is given."""

    def __init__(self):
        self.tags = []

    def inc(self, _=1.0, tags=None):
        self.tags.append(tags)


def scope(path, *headers, version="2.4", method="POST"):
    """Return the ASGI scope of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": version},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), *headers],
        "scheme": "http",
    }


class Client:
    """One request to an ASGI application, whose body arrives when the test sends it."""

    def __init__(self, app, path="/v1/chat/completions", **more):
        self.messages = asyncio.Queue()
        self.sent = []
        self.task = asyncio.create_task(app(scope(path, **more), self.messages.get, self))

    async def __call__(self, message):
        self.sent.append(message)

    def send(self, body, more=False):
        self.messages.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self):
        self.messages.put_nowait({"type": "http.disconnect"})

    async def answered(self):
        await asyncio.wait_for(self.task, 120)
        return self

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def error(self):
        return json.loads(self.body)["error"]


def prompt(**fields):
    given = {
        "token_ids": tuple(range(20, 40)),
        "text": "Write a Python function that reverses a list.",
        "sampling": SamplingParams(max_tokens=12, ignore_eos=True),
    }
    return Prompt(**given | fields)


async def answered(ingress, asked):
    [answer] = await ingress.answerer.answers(asked)
    return answer


async def spoken(answer):
    return [chunk async for chunk in answer.chunks]


def events(response):
    lines = [line for line in response.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [line.removeprefix("data: ") for line in lines]


async def posted(ingress, path, asked):
    response = await ingress.http.post(path, json=asked)
    assert response.status_code == 200, response.text
    return response.json()


async def until(condition):
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.01)


def broken(error=None, after=0):
    """A replica that gives `after` chunks and then raises `error`, or ends without a word."""

    async def stream(request, _):
        for _ in range(after):
            yield DecodeChunk(request_id=request.request_id, text="x")
        if error is not None:
            raise error

    return stream


def chunk(request, text, finish=None, **more):
    """Return a replica's chunk; the last one, which says why the answer ends, has statistics."""
    name = request.request_id
    stats = observation(name, request.method).stats if finish else None
    return DecodeChunk(request_id=name, text=text, finish_reason=finish, stats=stats, **more)


def recorded(ingress, text):
    """Let every method answer with a text that a model gave elsewhere, a character at a time."""

    async def stream(request, _):
        for char in text:
            yield chunk(request, char, token_ids=(40,))
        yield chunk(request, "", "stop")

    ingress.streams |= dict.fromkeys(ingress.streams, stream)


def reached(ingress):
    """The requests that reach the methods from now on, as a list that grows."""
    seen = []

    def noted(real):
        def stream(request, whole):
            seen.append(request)
            return real(request, whole)

        return stream

    ingress.streams |= {name: noted(real) for name, real in ingress.streams.items()}
    return seen


def second_fails(ingress, after=0):
    """Of the requests that come the second finds every method broken, after so many chunks; gives
    the requests' ids, which grow as they come."""
    ids = []

    def failing(real):
        def stream(request, whole):
            if request.request_id not in ids:
                ids.append(request.request_id)
            hit = ids.index(request.request_id) == 1
            return (broken(RuntimeError("gone"), after) if hit else real)(request, whole)

        return stream

    ingress.streams |= {name: failing(real) for name, real in ingress.streams.items()}
    return ids


def dies_after(real, tokens):
    """A replica that dies when it has given so many tokens of an answer, or a few more."""

    async def stream(request, whole):
        given = 0
        async with aclosing(real(request, whole)) as chunks:
            async for chunk in chunks:
                if chunk.finish_reason is not None:
                    raise RuntimeError("gone")
                yield chunk
                given += len(chunk.token_ids)
                if given >= tokens:
                    raise RuntimeError("gone")

    return stream
