"""What uvicorn takes of a request's headers."""

import asyncio
import json

import pytest
import uvicorn

from deployments.guard.haproxy import MAX_HEADER_BYTES, MAX_HEADERS
from deployments.guard.proxy import BoundedHeaders

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
MEGABYTE = b"a" * 2**20


async def length(_scope, receive, send):
    """Answers with the length of the request's body."""
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d" % len(body)})


@pytest.fixture
async def port():
    settings = uvicorn.Config(
        length, port=0, http=BoundedHeaders, lifespan="off", log_level="critical"
    )
    server = uvicorn.Server(settings)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await running


async def answered(port, *pieces):
    """The status and the body of the answer; none where the connection just ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    sized = next((line for line in head if line.startswith("content-length: ")), None)
    body = await (reader.readexactly(int(sized[16:])) if sized else reader.readuntil(b"\r\n0\r\n"))
    writer.close()
    return int(head[0].split()[1]), body


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"a: b\r\n" * (MAX_HEADERS - 1) + b"\r\n"],
        [GET + b"a: " + b"b" * (MAX_HEADER_BYTES - 40) + b"\r\n\r\n"],
        [CHUNKED, b"5\r\nhello\r\n", b"0\r\na: b\r\n\r\n"],
        [b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (4 * 2**20), *[MEGABYTE] * 4],
    ],
    ids=["many", "long", "trailer", "body"],
)
async def test_what_is_within_the_bounds_is_answered(port, pieces):
    assert (await answered(port, *pieces))[0] == 200


@pytest.mark.parametrize(
    "pieces",
    [
        [GET + b"a: b\r\n" * MAX_HEADERS + b"\r\n"],
        [GET + b"a: " + b"b" * MAX_HEADER_BYTES + b"\r\n\r\n"],
        [b"GET /" + b"a" * MAX_HEADER_BYTES + b" HTTP/1.1\r\n\r\n"],
        [GET, b"a: ", *[MEGABYTE] * 64],
        [GET, b"a" * MAX_HEADER_BYTES + b"b", *[MEGABYTE] * 8],
    ],
    ids=["many", "long", "path", "bomb", "name"],
)
async def test_what_is_beyond_gets_431_and_no_place_in_memory(port, pieces):
    status, body = await answered(port, *pieces)
    assert status == 431
    assert json.loads(body)["error"]["code"] == "headers_too_large"


@pytest.mark.parametrize(
    "trailers",
    [[b"a: b\r\n" * MAX_HEADERS + b"\r\n"], [b"a: ", *[MEGABYTE] * 4]],
    ids=["many", "bomb"],
)
async def test_trailers_beyond_end_the_connection(port, trailers):
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await answered(port, CHUNKED, b"0\r\n", *trailers)


async def test_the_bounds_are_each_requests_own(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        writer.write(GET + b"a: " + b"b" * (MAX_HEADER_BYTES - 100) + b"\r\n\r\n")
        assert b" 200 " in await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
