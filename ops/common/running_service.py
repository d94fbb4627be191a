"""A service to talk to: the one at a URL, or one started here and stopped again."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import yaml

from deployments.guard.haproxy import free_port
from ops.common.boundary import InputError
from ops.common.settings import served_config
from ops.common.vllm_command import startable
from workers.http_clients import client

# Longer than the service's own patience, whose message says more.
READY_SECONDS = 330.0
STOP_SECONDS = 30.0


@contextmanager
def running_service(url: str | None, config: Path | None) -> Iterator[str]:
    """Yield the address of a service: the one at `url`, or one that is started here.

    A started service has a free port and a state of its own. Raises InputError if it does not
    become ready.
    """
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="specadapt-") as folder:
        # What was left open stays so: default methods are those that the bundle has parts for.
        changed = served_config(config).model_dump(mode="json", exclude_unset=True)
        changed.setdefault("http", {})["host"] = "127.0.0.1"
        changed.setdefault("feedback", {})["state_uri"] = f"{folder}/state"
        file = Path(folder) / "config.yaml"
        file.write_text(yaml.safe_dump(changed), encoding="utf-8")
        with started([sys.executable, "-m", "ops", "serve", "--config", str(file)]) as address:
            yield address


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """Start a server by a command, to which `--port` is added; yield its address.

    Raises InputError if it cannot be started or does not become ready.
    """
    port = free_port()
    words = startable([*command, "--port", str(port)])
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="specadapt-") as folder:
        log = Path(folder) / "server.log"
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as error:
            raise InputError(f"{words[0]} cannot be started: {error.strerror}") from error
        try:
            _wait_until_ready(address, process, log)
            yield address
        finally:
            _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Interrupt a process; kill it with its session where that is not enough."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the service's /health answers.

    Raises InputError with the log's last line if its process ends or it takes longer than
    READY_SECONDS.
    """
    deadline = time.monotonic() + READY_SECONDS
    # One client for all: to make one takes 60 ms of a core, which the server needs.
    with client(address, timeout=5.0) as asking:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise InputError(f"{address} ended before it was ready: {_last_line(log)}")
            with suppress(httpx.TransportError):
                if asking.get("/health").status_code == httpx.codes.OK:
                    return
            time.sleep(0.2)
    raise InputError(f"{address} was not ready within {READY_SECONDS:.0f} s: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it said nothing")
