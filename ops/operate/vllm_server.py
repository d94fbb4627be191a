"""`specadapt vllm`: vLLM's own server with several drafters, without Ray."""

import os
import shlex
from typing import Annotated

import typer

from ops.common import flags
from ops.common.vllm_command import startable

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
