"""Working replacements for broken kernels of vLLM's CPU build."""

from collections.abc import Callable
from typing import Any

import torch


def repair() -> None:
    """Replace the kernels, before a worker registers vLLM's CPU kernels. Do nothing on GPUs.

    One repeats each request's temperature, top-k and top-p for each of its tokens. vLLM
    0.32's reads them as integers and writes to a copy, so the result is uninitialised memory:
    above temperature 0 answers do not follow the target's distribution (see vLLM's pull request
    42638). Those of LoRA give a request without an adapter, in a batch with others, the last
    adapter: they take its index -1 for the end of a list.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.utils import cpu_triton_utils

        cpu_triton_utils._expand_kernel_impl = expand
        from vllm.lora.ops.torch_ops import lora_ops

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
