"""Which servers our own clients ask through the environment's proxy."""

import socket
from pathlib import Path

import pytest
from stand_in import StandIn, listening

from deployments.guard.haproxy import free_port
from workers.http_clients import async_client, client, is_here

HERE = ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "0.0.0.0", socket.gethostname()]
VARIABLES = [f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")]
ROOT = Path(__file__).parents[2]
PACKAGES = ("workers", "router", "deployments", "training", "ops")
REMOTE = "http://203.0.113.7:8000"


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


class Answer(StandIn):
    """Answers with the target of the request line, of which a proxy gets the whole URL."""

    def get(self):
        self.reply(self.path)


async def answers(url):
    """What the server says to either client."""
    with client(url, timeout=5.0) as one:
        first = one.get("/health").text
    async with async_client(url, timeout=5.0) as other:
        return [first, (await other.get("/health")).text]


@pytest.mark.parametrize("host", HERE)
def test_own_addresses_are_here(host):
    assert is_here(f"http://{host}:8000")


@pytest.mark.parametrize("host", ["203.0.113.7", "[2001:db8::1]", "example.com", "localhost.com"])
def test_other_addresses_are_not(host):
    assert not is_here(f"http://{host}:8000/v1")


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_nothing_here_goes_through_a_proxy(monkeypatch, name, scheme):
    monkeypatch.setenv(name, f"{scheme}://127.0.0.1:{free_port()}")
    with listening(Answer) as server:
        assert await answers(server.address) == ["/health", "/health"]


async def test_other_servers_are_asked_through_it(monkeypatch):
    with listening(Answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        assert await answers(REMOTE) == [f"{REMOTE}/health"] * 2


@pytest.mark.parametrize("make", [client, async_client])
def test_a_proxy_that_needs_a_package_is_told_in_one_line(monkeypatch, make):
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:1080")
    with pytest.raises(ValueError, match=r"ALL_PROXY.*pip install 'httpx\[socks\]'"):
        make(REMOTE)
    monkeypatch.setenv("NO_PROXY", "203.0.113.7")
    make(REMOTE)


def test_certificates_of_the_environment_stay(monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "absent.pem"))
    with pytest.raises(OSError, match="No such file"):
        client("https://localhost:8000")


def test_no_other_code_makes_clients():
    """Else it would ask this machine's servers through a proxy."""
    makers = ("httpx.Client(", "httpx.AsyncClient(", "httpx.get(", "httpx.post(", "httpx.request(")
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = [path.name for path in files if any(one in path.read_text() for one in makers)]
    assert found == ["http_clients.py"]
