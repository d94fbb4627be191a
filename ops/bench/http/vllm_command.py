"""`vllm serve` with the arguments that our own engine gets."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from ops.harness.settings import Setup
from router.fit.speedup import VLLM_BASELINE
from workers.bundle import load_bundle
from workers.methods import get_method


def completed(command: Sequence[str], setup: Setup) -> list[str]:
    """Add our engine's model and arguments to a `vllm serve` command that names no model: those of
    the set-up's method, or of plain decoding if it has several.

    Raises InputError if it names no model and the methods are not vLLM's.
    """
    words = list(command)
    if len(words) > 2 or Path(words[0]).name != "vllm" or words[1:] != ["serve"]:
        return words
    spec = setup.methods[0] if len(setup.methods) == 1 else get_method(VLLM_BASELINE)
    if any(method.engine != "vllm" for method in setup.methods):
        named = ", ".join(setup.names)
        raise InputError(f"--against: give the model and its arguments, since {named} has none")
    from workers.vllm_engine.arguments import engine_arguments

    arguments = engine_arguments([spec], load_bundle(setup.bundle), setup.engine)
    model = arguments.pop("model")
    return [*words, model, *(word for item in arguments.items() for word in _flag(*item))]


def environment(setup: Setup) -> dict[str, str]:
    """What a process that starts vLLM's engine needs, for our settings."""
    if any(spec.engine == "vllm" for spec in setup.methods):
        from workers.vllm_engine.environment import process_environment

        return process_environment(setup.engine, shared=False)
    return {}


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag.removeprefix('--')}"]
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
