"""The service behind Ray's HAProxy: headers without end, and a proxy that dies."""

import os
import signal
import socket
import threading
from contextlib import ExitStack, closing, suppress

import httpx
import psutil
import pytest
from running_service import HTTP, START_SECONDS, until
from served import service_config

from deployments.guard import haproxy

# A minute and a half: two proxies have to start again.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not haproxy.available(), reason="Ray brings no HAProxy"),
]

PIECE = b"a: " + b"b" * 2**20 + b"\r\n"
PIECES = 64
LONG = 1500
"""Tokens of an answer that takes several load reports."""


@pytest.fixture(scope="module")
def service(deploy, port, tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("haproxy")
    engine = {"max_context": 2048, "kv_slots": 8192}
    return deploy(
        service_config(folder, tiny_bundle, ("naive",), http={"port": port}, engine=engine)
    )


def below(title):
    """The processes of this test session's Ray whose command line begins so, or that are named
    so."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.name() == title or " ".join(process.cmdline()).startswith(title):
                found.append(process)
    return found


def ports(process):
    connections = process.net_connections("inet")
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


def lives(process):
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def bombed(port):
    """The status that 64 MiB of headers get."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS)) as client:
        with suppress(ConnectionError):
            client.sendall(b"GET /v1/models HTTP/1.1\r\nhost: a\r\n")
            for _ in range(PIECES):
                client.sendall(PIECE)
        return int(client.recv(1000).split()[1])


def test_headers_without_end_cost_nothing(service, port):
    [proxy] = below("haproxy")
    [ingress] = below("ray::ServeReplica:specadapt:ingress")
    # HAProxy has one port, and that of the ingress is no way past the bounds.
    assert ports(proxy) == {port}
    [own] = {p for p in ports(ingress) if 30000 <= p < 31000}
    with ExitStack() as stack:
        stream = service.stream(stack, "tiny:naive", max_tokens=64)
        next(stream)
        memory = ingress.memory_info().rss
        for _ in range(4):
            assert bombed(port) == 400
            assert bombed(own) == 431
        assert ingress.memory_info().rss - memory < PIECES * 2**20
        assert list(stream)[-1] == "data: [DONE]"
    before = proxy.cpu_times().user + ingress.cpu_times().user
    asked = HTTP.get(f"{service.url}/v1/models", headers={f"x-{i}": "b" for i in range(120)})
    assert (asked.status_code, asked.json()["error"]["code"]) == (431, "headers_too_large")
    assert proxy.cpu_times().user + ingress.cpu_times().user - before < 2.0


@pytest.mark.parametrize("headers", [{}, {"x-request-disconnect-disabled": "?1"}])
def test_a_client_that_leaves_ends_its_work(service, headers):
    """A second answer, just as long, is over while the first one is still decoded. Ray would obey
    the header."""
    received = []
    with ExitStack() as stays, ExitStack() as leaves:
        first = service.stream(stays, "tiny:naive", max_tokens=LONG)
        received.append(next(first))
        reading = threading.Thread(target=lambda: received.extend(first))
        reading.start()
        second = service.stream(leaves, "tiny:naive", headers, max_tokens=LONG)
        next(second)
        until(lambda: service.load("naive")["running"] == 2)
        leaves.close()
        until(lambda: service.load("naive")["running"] < 2)
        assert reading.is_alive(), f"both ended, after {len(received)} events"
        reading.join()
    assert received[-1] == "data: [DONE]"


@pytest.mark.parametrize("victim", ["haproxy", "ray::HAProxyManager"])
def test_a_dead_proxy_is_replaced(service, victim):
    before = below("haproxy")
    [killed] = below(victim)
    os.kill(killed.pid, signal.SIGKILL)

    def back():
        # One that outlived Ray's process is nobody's child, and keeps the port.
        if any(map(lives, before)):
            return False
        try:
            answer = service.chat(model="tiny:naive")
        except httpx.TransportError:
            return False
        # Until it knows the ingress, it asks clients to try again.
        assert answer.status_code in (200, 503), answer.text
        return answer.status_code == 200

    until(back, START_SECONDS)
