"""Another OpenAI server, started by a command of the user's: what ours is compared with."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from ops.harness.boundary import InputError
from ops.harness.running_service import READY_SECONDS, free_port, stop

HOST = "127.0.0.1"


@contextmanager
def other_server(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    """The address of the server that the command starts on a free port, once it answers; the
    server and whatever it has started are gone at the end.

    Raises InputError where the program is not there or the server does not become ready.
    """
    port = free_port()
    words = [*command, "--host", HOST, "--port", str(port)]
    with tempfile.TemporaryDirectory(prefix="specadapt-other-") as folder:
        log = Path(folder) / "server.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                words,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **environment},
            )
        try:
            address = f"http://{HOST}:{port}"
            _wait_until_ready(address, process, log)
            yield address
        finally:
            stop(process)
            with suppress(ProcessLookupError):  # what its end has left of its session
                os.killpg(process.pid, signal.SIGKILL)


def split_command(command: str) -> list[str]:
    """Split a command into words; its program may be installed next to this command.

    Raises InputError if there is no such program, or if the command chooses the port.
    """
    words = shlex.split(command)
    if "--port" in words:
        raise InputError("--against: leave out --port; a free port is chosen")
    here = str(Path(sys.executable).parent)
    program = words and (shutil.which(words[0]) or shutil.which(words[0], path=here))
    if not program:
        raise InputError(f"--against: {command!r}: no such program")
    return [program, *words[1:]]


def _wait_until_ready(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise InputError(f"--against: the server ended before it was ready: {_cause(log)}")
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/health", timeout=5.0).status_code == httpx.codes.OK:
                return
        time.sleep(0.2)
    raise InputError(
        f"--against: the server was not ready within {READY_SECONDS:.0f} s: {_cause(log)}"
    )


def _cause(log: Path) -> str:
    """The first line that names an error, which later ones follow from; else the last line."""
    lines = [
        line.strip()
        for line in log.read_text(encoding="utf-8", errors="replace").split("\n")
        if line.strip()
    ]
    named = [line for line in lines if "Error: " in line or "error: " in line]
    return (named or lines[-1:] or ["it said nothing"])[0]
