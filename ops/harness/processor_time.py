"""The processor time of a server that this process has started, by its processes."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

_RAY = "ray::"
_REPLICA = "ServeReplica:"


def processor_seconds(url: str) -> Counter[str]:
    """User and system seconds of all processes of the server at `url`, summed by their role.

    Empty for a server that is not a descendant of this process.
    """
    spent: Counter[str] = Counter()
    for process in _processes(httpx.URL(url).port):
        with suppress(psutil.Error):
            times = process.cpu_times()
            spent[role_of(process.cmdline() or [process.name()])] += times.user + times.system
    return spent


def per_request_ms(spent: Counter[str], requests: int) -> dict[str, float]:
    """Milliseconds of processor time per request by role, the largest first."""
    return {role: seconds * 1e3 / requests for role, seconds in spent.most_common()}


def role_of(words: Sequence[str]) -> str:
    """Name a process by its command line: a deployment or another actor of Ray's, else the
    program or module."""
    title = words[0].partition(_RAY)[2]
    if title:
        actor = title.split()[0].partition(".")[0].partition("(")[0]
        return actor.removeprefix(_REPLICA).rpartition(":")[2]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    scripts = [word for word in words[1:] if word.endswith(".py")]
    return Path((scripts or words)[0].split()[0]).stem


def _processes(port: int | None) -> list[psutil.Process]:
    """The server that listens on a port, from the child of this process on."""
    here = psutil.Process()
    for child in here.children():
        tree = [child, *child.children(recursive=True)]
        if any(_listens(process, port) for process in tree):
            return tree
    return []


def _listens(process: psutil.Process, port: int | None) -> bool:
    try:
        connections = process.net_connections("inet")
    except psutil.Error:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
