"""Clients that speak no HTTP, half of it, or never read: the service lives on."""

import contextlib
import json
import socket
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import service_config
from service_here import service_here

SECONDS = 60.0
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def address(tmp_path_factory, tiny_bundle):
    """Host and port of a service on a real socket."""
    config = service_config(tmp_path_factory.mktemp("raw"), tiny_bundle, ("naive", "ngram"))
    with service_here(config) as url:
        place = urlsplit(url)
        yield place.hostname, place.port


def said(address, sent, *, hang_up=True):
    """What the service says to these bytes until it closes, or to a client that hangs up."""
    with socket.create_connection(address, timeout=SECONDS) as connection:
        connection.sendall(sent)
        if hang_up:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


def lives(address):
    return httpx.get("http://{}:{}/health".format(*address), timeout=SECONDS).is_success


LINES = st.sampled_from([HEAD, b"GET / HTTP/1.1\r\n", b"Content-Length: 9\r\n", b"\r\n", BODY])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(LINES | st.binary(max_size=40), min_size=1, max_size=6).map(b"".join))
def test_whatever_bytes_come_there_is_no_500_and_no_hang(address, sent):
    for line in said(address, sent).split(b"\r\n"):
        assert not line.startswith(b"HTTP/1.1 5"), line
    assert lives(address)


@pytest.mark.parametrize("kept", [0, 1, len(BODY) // 2, len(BODY) - 1])
def test_half_a_body(address, kept):
    answer = said(address, HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:kept])
    assert not answer.startswith(b"HTTP/1.1 5")
    assert lives(address)


def test_a_body_in_pieces_is_read_whole(address):
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = b"".join(
        b"1\r\n%c\r\n" % byte for byte in BODY.replace(b"}]", b'}],"max_tokens":2', 1)
    )
    answer = said(address, head + pieces + b"0\r\n\r\n", hang_up=False)
    assert answer.startswith(b"HTTP/1.1 200"), answer[:300]


def test_those_who_never_read_are_answered_no_further_than_they_hang_up(address):
    body = BODY.replace(b"}]", b'}],"stream":true,"max_tokens":200,"ignore_eos":true', 1)
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    open_ones = []
    for _ in range(4):
        connection = socket.create_connection(address, timeout=SECONDS)
        connection.sendall(head + body)
        open_ones.append(connection)
    assert lives(address)
    for connection in open_ones:
        connection.close()
    assert lives(address)
