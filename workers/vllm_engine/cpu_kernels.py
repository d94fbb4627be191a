"""A kernel of vLLM's CPU build that loses what it computes, in a form that does not."""

import torch


def repair() -> None:
    """To be called before a worker registers vLLM's CPU kernels, in any process; nothing on GPUs.

    Where requests have drafts, each one's temperature, top-k and top-p are repeated for each of its
    tokens. vLLM 0.32's CPU kernel reads them as integers, writes to a copy and leaves the result
    as the memory was: above temperature 0 answers were drawn from something else than the target's
    distribution, and hardly a draft was accepted (vLLM's pull request 42638 is about the same).
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.utils import cpu_triton_utils

        cpu_triton_utils._expand_kernel_impl = expand


def expand(
    output: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803, ARG001
) -> None:
    """Fill output [tokens] with each request's value [requests], for as many tokens as it has: up
    to its end among all of them [requests]. A value that equals `replace_from` is replaced."""
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    repeated = values.repeat_interleave(counts)
    output.copy_(repeated.masked_fill(repeated == replace_from, replace_to))
