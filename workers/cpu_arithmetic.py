"""What this CPU computes in hardware."""

import torch


def computes_bfloat16() -> bool:
    """Return whether this CPU computes in bfloat16 through oneDNN, if torch has it."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and bool(supported())
