"""The plugin that vLLM loads in each process, with repairs of vLLM's CPU build."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from workers.vllm_engine.lifeline import end_with_parent
from workers.vllm_engine.requirements import CPU_REPAIRS, refuse_changes


def register() -> None:
    """Tie the processes of our engines to their replica, register our Medusa model by its path,
    so that it is imported only when needed, and repair what is broken in vLLM's CPU build. Nothing
    else changes."""
    from vllm import ModelRegistry
    from vllm.platforms import current_platform

    end_with_parent()
    if current_platform.is_cpu():
        refuse_changes("our repairs of its CPU build", CPU_REPAIRS)
        repair_kernels()
        repair_compile_cache()
    ModelRegistry.register_model(
        "MedusaModel", "workers.vllm_engine.drafting.medusa_model:MedusaModel"
    )


def repair_compile_cache() -> None:
    """Let vLLM's CPU build load what it has compiled and saved.

    vLLM 0.32 asks each loaded function to finish its loading. Only its own functions can, and on
    CPUs, where it compiles by torch's Inductor alone, they are torch's: every start compiles again.
    """
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


def repair_kernels() -> None:
    """Replace the kernels, before a worker registers vLLM's CPU kernels.

    One repeats each request's temperature, top-k and top-p for each of its tokens. vLLM
    0.32's reads them as integers and writes to a copy, so the result is uninitialised memory:
    above temperature 0 answers do not follow the target's distribution (see vLLM's pull request
    42638). Those of LoRA give a request without an adapter, in a batch with others, the last
    adapter: they take its index -1 for the end of a list.
    """
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand
    for name in ("bgmv_expand", "bgmv_expand_slice"):
        setattr(lora_ops, name, without_adapter(getattr(lora_ops, name)))


def expand(
    output: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803, ARG001
) -> None:
    """Fill output [tokens] with each request's value [requests], up to its end among all tokens
    [requests]. A value equal to `replace_from` is replaced."""
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    repeated = values.repeat_interleave(counts)
    output.copy_(repeated.masked_fill(repeated == replace_from, replace_to))


def without_adapter(add: Callable[..., None]) -> Callable[..., None]:
    """Return a kernel of LoRA that adds nothing to the tokens of no adapter.

    Its first and fourth arguments are the tokens' reduced states [tokens, rank] and the indices of
    their adapters [tokens], -1 for none.
    """

    def added(
        states: torch.Tensor,
        weights: torch.Tensor,
        output: torch.Tensor,
        indices: torch.Tensor,
        *rest: Any,
    ) -> None:
        add(states * (indices >= 0)[:, None], weights, output, indices, *rest)

    return added
