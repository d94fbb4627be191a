"""Clients that never ask twice, on a real service and on sockets that fail in their own ways."""

import asyncio
from contextlib import asynccontextmanager

import numpy as np
import pytest

from ops.harness.prompts import Prompt
from ops.load.chaos.clients import client, under_load

PROMPTS = [Prompt(id="a", domain="math", messages=({"role": "user", "content": "Add 1 and 2"},))]
DEADLINE_SECONDS = 60.0


async def driven(url, model="any", count=3, **parameters):
    """The requests of a run that goes on until so many have been sent."""
    async with client(url) as server, asyncio.timeout(DEADLINE_SECONDS):
        arrivals = np.arange(count) * 0.01
        async with under_load(server, PROMPTS, arrivals, {"model": model, **parameters}) as sent:
            while len(sent) < count:
                await asyncio.sleep(0.01)
        return sent


@asynccontextmanager
async def saying(reply):
    """The address of a server that says `reply` to each request and hangs up."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_answers_of_a_service(listening):
    requests = await driven(listening, "tiny", max_tokens=6, temperature=0.0, ignore_eos=True)
    assert [request.outcome for request in requests] == ["answered"] * 3
    for request in requests:
        assert request.due < request.pieces[0] <= request.ended
        assert request.method in ("naive", "ngram")
    assert len({request.id for request in requests}) == 3


EVENT = b'data: {"id": "chatcmpl-1", "choices": [{"delta": {"content": "Hi"}}]}\n\n'
FAILED = b'data: {"error": {"code": "answer_broken_off", "message": "died"}}\n\n'


@pytest.mark.parametrize(
    ("reply", "outcome", "error"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n" + EVENT, "broken_off", "the stream ended too soon"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + EVENT + FAILED, "broken_off", "answer_broken_off"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "lost", "the stream ended too soon"),
        (b"HTTP/1.1 503 Busy\r\nretry-after: 1\r\n\r\n", "refused", "503"),
        (b"HTTP/1.1 500 Oh\r\n\r\n", "lost", "500"),
        (b"", "lost", "RemoteProtocolError"),
    ],
)
async def test_servers_that_fail(reply, outcome, error):
    async with saying(reply) as url:
        requests = await driven(url)
    assert {(request.outcome, request.error) for request in requests} == {(outcome, error)}


async def test_nobody_there():
    requests = await driven("http://127.0.0.1:9")
    assert {(request.outcome, request.error) for request in requests} == {("lost", "ConnectError")}


async def test_requests_that_are_not_due_are_not_sent():
    async with client("http://127.0.0.1:9") as server:
        async with under_load(server, PROMPTS, np.asarray([0.0, 1e6]), {}) as sent:
            while not sent:
                await asyncio.sleep(0.01)
        assert len(sent) == 1
