"""Another OpenAI server, started by a command of the user's: what ours is compared with."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ops.harness.boundary import InputError
from ops.harness.running_service import free_port, stop, wait_until_ready

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
            wait_until_ready(address, process, "--against: the server", partial(_cause, log))
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


def _cause(log: Path) -> str:
    """The first line that names an error, which later ones follow from; else the last line."""
    lines = [
        line.strip()
        for line in log.read_text(encoding="utf-8", errors="replace").split("\n")
        if line.strip()
    ]
    named = [line for line in lines if "Error: " in line or "error: " in line]
    return (named or lines[-1:] or ["it said nothing"])[0]
