"""What this CPU computes in hardware."""

import torch


def computes_bfloat16() -> bool:
    """Return whether this CPU computes in bfloat16 through oneDNN, if torch has it."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())


def cpu_dtype() -> str:
    """Return the dtype for a model on this CPU: bfloat16 where it is computed in hardware, else
    float32.

    Without such hardware oneDNN has no kernel, and torch's own is several times slower than
    float32.
    """
    return "bfloat16" if computes_bfloat16() else "float32"
