"""The demo's `specadapt vllm serve`, as tests start it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import httpx
import pytest
from conftest_bundle import DEMO

from deployments.guard.haproxy import free_port

START_SECONDS, END_SECONDS = 300.0, 60.0


@contextmanager
def vllm_serving(
    tmp_path_factory: pytest.TempPathFactory, methods: str, flags: Sequence[str]
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run `serving` with these methods."""
    command = [sys.executable, "-m", "ops.main", "vllm", "serve", str(DEMO), "--methods", methods]
    with serving(tmp_path_factory, [*command, *flags]) as made:
        yield made


@contextmanager
def serving(
    tmp_path_factory: pytest.TempPathFactory, command: Sequence[str]
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a server on a free port; return its address and its process, the leader of a group.

    It takes a minute or more to answer (`ready`).
    """
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    port, log = free_port(), tmp_path_factory.mktemp("vllm") / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield f"http://127.0.0.1:{port}", server
    finally:
        print(log.read_text()[-4000:])  # pytest shows it with a failure
        server.terminate()
        try:
            server.wait(END_SECONDS)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)


def ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    transport = httpx.HTTPTransport(retries=0)
    with httpx.Client(transport=transport) as client:
        for _ in range(int(START_SECONDS)):
            try:
                if client.get(f"{url}/health").is_success:
                    return
            except httpx.TransportError:
                pass
            try:
                server.wait(1.0)
            except subprocess.TimeoutExpired:
                continue
            break
    pytest.fail(f"no server within {START_SECONDS} s")
