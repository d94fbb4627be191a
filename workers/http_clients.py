"""HTTP clients of our own processes. What stays on this machine goes through no proxy."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from urllib.request import proxy_bypass

import httpx


def client(url: str, **settings: Any) -> httpx.Client:
    """Return a client of the server at `url`; `settings` are httpx's.

    Only a server on another machine is asked through the environment's proxy. Raises ValueError if
    that proxy cannot be used.
    """
    with _told():
        return httpx.Client(base_url=url, **_direct(url), **settings)


def async_client(url: str, **settings: Any) -> httpx.AsyncClient:
    """Return an asynchronous client, as `client` does."""
    with _told():
        return httpx.AsyncClient(base_url=url, **_direct(url), **settings)


def is_here(url: str) -> bool:
    """Return whether an address is this machine's own. Names other than this machine's and
    localhost are not looked up: behind a proxy that may fail slowly."""
    host = httpx.URL(url).host
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))  # only an own address can be bound
        except OSError:
            return False
    return True


def _direct(url: str) -> dict[str, Any]:
    """Return the settings that keep the environment's proxies out; none where one may be used.

    httpx makes its proxies even if NO_PROXY names the server.
    """
    if not (is_here(url) or proxy_bypass(httpx.URL(url).host)):
        return {}
    direct: dict[str, Any] = {"trust_env": False}
    if httpx.URL(url).scheme == "https":  # the environment's certificates stay
        direct["verify"] = httpx.create_ssl_context()
    return direct


@contextmanager
def _told() -> Iterator[None]:
    """Raise ValueError with one line where httpx misses a package for the proxy's scheme."""
    try:
        yield
    except ImportError as error:
        raise ValueError(
            "the proxy in ALL_PROXY, HTTPS_PROXY or HTTP_PROXY needs a package: install it with "
            "`pip install 'httpx[socks]'`, or name this server in NO_PROXY"
        ) from error
