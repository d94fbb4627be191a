"""A Ray cluster of several nodes on one machine, each in a network namespace of its own."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from running_service import START_SECONDS, until

BRIDGE = "specadapt0"
NETWORK = "10.213.77"
HEAD = f"{NETWORK}.10"
GCS_PORT = "6379"
RAY = Path(sys.executable).parent / "ray"
ENVIRONMENT = {
    # Ray's own are for networks with lost packets: it would take a minute to call a node dead
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def can_make_nodes() -> bool:
    """Whether this user may make network namespaces here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = "specadapt-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        return False
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return True


class Node:
    """A namespace with an address, and a raylet in it. Number 0 is the head."""

    def __init__(self, number: int, cpus: float) -> None:
        self.name = f"specadapt{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self._link = f"sa-node{number}"
        self._cpus = cpus

    def make(self) -> None:
        """The namespace and its address."""
        _ip("netns", "add", self.name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", self._link, "master", BRIDGE, "up")
        for words in ("addr add {}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _ip("-n", self.name, *words.format(self.address).split())

    def inside(self, *command: str | Path) -> list[str]:
        """The command as it runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *map(str, command)]

    def start(self) -> None:
        """Be the head, or join it."""
        head = self.address == HEAD
        place = ["--head", "--port", GCS_PORT] if head else ["--address", f"{HEAD}:{GCS_PORT}"]
        done = subprocess.run(
            self.inside(
                *(RAY, "start", *place, "--node-ip-address", self.address),
                *("--num-cpus", str(self._cpus), "--object-store-memory", "100000000"),
                *(("--include-dashboard", "false") if head else ()),
            ),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            env=os.environ | ENVIRONMENT,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def pids(self) -> list[int]:
        """Of everything that runs in it."""
        done = subprocess.run(
            ["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True
        )
        return [int(pid) for pid in done.stdout.split()]

    def has_raylet(self) -> bool:
        """Whether the process that makes it one of the cluster's nodes lives."""
        return any("raylet/raylet" in command(pid) for pid in self.pids())

    def kill(self) -> None:
        """Everything in it dies at once, and its address answers no more, as of a machine that has
        lost its power."""
        self.cut()
        self.end()

    def end(self) -> None:
        """Everything in it dies at once, as in a container that is ended."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.pids())

    def cut(self) -> None:
        """Nothing comes in or goes out any more; all of it runs on."""
        _ip("link", "set", self._link, "down")

    def join(self) -> None:
        """The network is there again."""
        _ip("link", "set", self._link, "up")

    def remove(self) -> None:
        """Leave nothing behind."""
        self.kill()
        for what, name in (("link", self._link), ("netns", self.name)):
            subprocess.run(["ip", what, "del", name], capture_output=True)


@contextmanager
def cluster(cpus: Sequence[float]) -> Iterator[list[Node]]:
    """A node for each number of logical CPUs, the head first; all of it is stopped at the end."""
    _ip("link", "add", BRIDGE, "type", "bridge")
    nodes: list[Node] = []
    try:
        _ip("addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        for number, share in enumerate(cpus):
            nodes.append(Node(number, share))
            nodes[-1].make()
            nodes[-1].start()
        yield nodes
    finally:
        for node in nodes:
            node.remove()
        _ip("link", "del", BRIDGE)


def command(pid: int) -> str:
    """A process's command line, empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
