"""vLLM's cache of compiled models on CPUs."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch


def repair() -> None:
    """Let vLLM's CPU build load what it has compiled and saved. Do nothing on GPUs.

    vLLM 0.32 asks each loaded function to finish its loading. Only its own functions can, and on
    CPUs, where it compiles by torch's Inductor alone, they are torch's: every start compiles again.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        torch.compiler.load_compiled_function = finishing(torch.compiler.load_compiled_function)


def finishing(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return `load` for functions that have nothing to finish."""

    @wraps(load)
    def loaded(*args: Any, **options: Any) -> Any:
        function = load(*args, **options)
        compiled = function._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):
            compiled.finalize_loading = lambda _config: None
        return function

    return loaded
