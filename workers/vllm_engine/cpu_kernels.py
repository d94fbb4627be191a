"""A working replacement for a broken kernel of vLLM's CPU build."""

import torch


def repair() -> None:
    """Replace the kernel, before a worker registers vLLM's CPU kernels. Do nothing on GPUs.

    The kernel repeats each request's temperature, top-k and top-p for each of its tokens. vLLM
    0.32's reads them as integers and writes to a copy, so the result is uninitialised memory:
    above temperature 0 answers do not follow the target's distribution (see vLLM's pull request
    42638).
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
    """Fill output [tokens] with each request's value [requests], up to its end among all tokens
    [requests]. A value equal to `replace_from` is replaced."""
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    repeated = values.repeat_interleave(counts)
    output.copy_(repeated.masked_fill(repeated == replace_from, replace_to))
