"""The faults of `specadapt bench chaos`, each of them real."""

import json
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import httpx

from deployments.actors import FEEDBACK
from deployments.app import INGRESS
from ops.harness.processes import CONTROLLER, PROXY, Process, processes
from ops.load.chaos.site import Site
from workers import http_clients

LASTS_SECONDS = 15.0
SLOW_CLIENTS = 16
HALF_OPEN = 200
KILLERS = 4
_RECEIVE_BYTES = 4096
_TOKENS = 256
_LINKS = 2500
_RULES = "".join(f"r{i}: r{i + 1}\n" for i in range(_LINKS))
_KILLER_SECONDS = 60.0
_CHAT = "/v1/chat/completions"

Pids = Collection[int]
"""Process ids that must be replaced before the service is whole again."""


@dataclass(frozen=True)
class Fault:
    """What befalls the service.

    happens: called with the busiest replica; entering it is the fault, leaving it lifts what can be
    lifted. lasts: seconds until that; 0 where nothing is to be lifted before the end of the run.
    """

    what: str
    happens: Callable[[Site, Process], AbstractContextManager[Pids]]
    lasts: float = 0.0


def killed(
    choose: Callable[[Process], list[Process]],
) -> Callable[[Site, Process], AbstractContextManager[Pids]]:
    """SIGKILL for the processes that `choose` names, given the busiest."""

    @contextmanager
    def happens(site: Site, busiest: Process) -> Iterator[Pids]:
        yield site.kill(choose(busiest))

    return happens


@contextmanager
def full_disk(_: Site, __: Process) -> Iterator[Pids]:
    """The feedback actor can write no byte to any file, as on a full disk."""
    [actor] = processes(FEEDBACK)
    before = resource.prlimit(actor.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(actor.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield ()
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(actor.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def broken_state(site: Site, _: Process) -> Iterator[Pids]:
    """The feedback actor dies, and its stored state is no JSON when it comes back."""
    pids = site.kill(processes(FEEDBACK))
    newest = max(site.state_folder.glob("state-*.json"))
    newest.write_bytes(os.urandom(newest.stat().st_size))
    yield pids


@contextmanager
def no_store(site: Site, _: Process) -> Iterator[Pids]:
    """The store's folder is gone and a file is in its place; the feedback actor dies and has to
    start without it."""
    aside = site.store.with_name(f"{site.store.name}-aside")
    site.store.rename(aside)
    site.store.touch()
    try:
        yield site.kill(processes(FEEDBACK))
    finally:
        site.store.unlink()
        aside.rename(site.store)


@contextmanager
def stalled(_: Site, busiest: Process) -> Iterator[Pids]:
    """The process of a replica stops in the middle of whatever it does, and does not end."""
    os.kill(busiest.pid, signal.SIGSTOP)
    try:
        yield (busiest.pid,)
    finally:
        with suppress(ProcessLookupError):
            os.kill(busiest.pid, signal.SIGKILL)


@contextmanager
def broken_drafters(site: Site, _: Process) -> Iterator[Pids]:
    """Every drafter raises whenever it is asked for a draft."""
    site.break_drafters(True)
    try:
        yield ()
    finally:
        site.break_drafters(False)


@contextmanager
def not_a_number(site: Site, busiest: Process) -> Iterator[Pids]:
    """The targets of a method compute NaN from now on."""
    replicas = processes(busiest.role)
    site.poison(busiest.role)
    yield [replica.pid for replica in replicas]


@contextmanager
def slow_clients(site: Site, _: Process) -> Iterator[Pids]:
    """Clients ask for long streams with much in them and read none of it."""
    body = json.dumps(
        _asking(site, _TOKENS, stream=True, ignore_eos=True, logprobs=True, top_logprobs=20)
    )
    yield from _connected(site, SLOW_CLIENTS, _post(body, len(body)))


@contextmanager
def half_open(site: Site, _: Process) -> Iterator[Pids]:
    """Connections over which half of a request comes, and no more."""
    yield from _connected(site, HALF_OPEN, _post('{"model": ', 1000))


@contextmanager
def killer_grammars(site: Site, _: Process) -> Iterator[Pids]:
    """Clients ask one after the other for answers under grammars that overflow stacks, take long
    or have no sentence. None is asked for twice, so that no verdict is remembered."""
    lifted = Event()

    def ask(client: int) -> None:
        for number in count(client, KILLERS):
            if lifted.is_set():
                return
            with suppress(httpx.HTTPError):
                body = _asking(site, 16, grammar=killer(number))
                with http_clients.client(site.service.url, timeout=_KILLER_SECONDS) as service:
                    service.post(_CHAT, json=body)

    with ThreadPoolExecutor(KILLERS) as clients:
        for client in range(KILLERS):
            clients.submit(ask, client)
        try:
            yield ()
        finally:
            lifted.set()


def killer(number: int) -> dict[str, str]:
    """Return the `grammar` field of one of the requests, each different from the others."""
    schemas: list[Callable[[], dict[str, Any]]] = [
        lambda: _chain(lambda ref: {"$ref": ref}),
        lambda: _chain(lambda ref: {"type": "array", "items": {"$ref": ref}}),
        lambda: _chain(lambda ref: {"anyOf": [{"type": "null"}, {"$ref": ref}]}),
        lambda: {"enum": [f"{i:012}" for i in range(100_000)]},
        lambda: {"$ref": "#"},
    ]
    others = [
        ("lark", f"start: r0\n{_RULES}r{_LINKS}: "),
        ("lark", "start: start "),
        ("lark", "start: /[0-9]{3}/ T\nT: /b/ & "),
        ("lark", "start: /b+/ /b/ "),
        ("regex", "(a{1000}){1000}"),
    ]
    which = number % (len(schemas) + len(others))
    if which < len(schemas):
        schema = {"title": str(number), **schemas[which]()}
        return {"kind": "json_schema", "text": json.dumps(schema)}
    kind, text = others[which - len(schemas)]
    return {"kind": kind, "text": text + (f'"{number}"' if kind == "lark" else str(number))}


def _chain(link: Callable[[str], Any]) -> dict[str, Any]:
    definitions = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(_LINKS)}
    return {"$defs": {**definitions, f"d{_LINKS}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def _asking(site: Site, tokens: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell a long story"}]
    return {"model": site.model, "messages": messages, "max_tokens": tokens, **fields}


def _connected(site: Site, number: int, said: bytes) -> Iterator[Pids]:
    """Open connections, send the text over each and never read from them."""
    address = urlsplit(site.service.url)
    with ExitStack() as connections:
        for _ in range(number):
            connection = connections.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            connection.connect((address.hostname, address.port))
            connection.sendall(said)
        yield ()


def _post(body: str, length: int) -> bytes:
    head = f"POST {_CHAT} HTTP/1.1\r\nhost: chaos\r\ncontent-type: application/json"
    return f"{head}\r\ncontent-length: {length}\r\n\r\n{body}".encode()


FAULTS = {
    "replica": Fault("one replica is killed", killed(lambda busiest: [busiest])),
    "method": Fault(
        "all replicas of a method are killed",
        killed(lambda busiest: processes(busiest.role)),
    ),
    "feedback": Fault("the feedback actor is killed", killed(lambda _: processes(FEEDBACK))),
    "controller": Fault(
        "Ray Serve's controller is killed", killed(lambda _: processes(CONTROLLER))
    ),
    "proxy": Fault("the HTTP proxy is killed", killed(lambda _: processes(PROXY))),
    "ingress": Fault("one ingress is killed", killed(lambda _: processes(INGRESS)[:1])),
    "disk": Fault("the state cannot be written", full_disk, LASTS_SECONDS),
    "table": Fault("the stored state is overwritten, the feedback actor killed", broken_state),
    "store": Fault("the state's store is away, the feedback actor killed", no_store, LASTS_SECONDS),
    "stall": Fault("one replica stops and does not end", stalled),
    "drafter": Fault("every drafter raises", broken_drafters, LASTS_SECONDS),
    "nan": Fault("a method's targets compute NaN", not_a_number),
    "slow-clients": Fault(f"{SLOW_CLIENTS} streams are not read", slow_clients, LASTS_SECONDS),
    "half-open": Fault(f"{HALF_OPEN} requests stop halfway", half_open, LASTS_SECONDS),
    "killer-grammar": Fault(
        f"{KILLERS} clients send grammars that kill or stall", killer_grammars, LASTS_SECONDS
    ),
}
