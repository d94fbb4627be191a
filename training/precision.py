"""Choose the precision of products in training."""

import torch

from workers.cpu_arithmetic import computes_bfloat16


def arithmetic(device: torch.device) -> torch.dtype:
    """Return bfloat16 if the device computes it natively, else float32.

    On CPUs without bfloat16 units oneDNN emulates it, and a target's states took ten times as long
    (44 against 463 tokens/s, SmolLM2 on two cores with AVX2).
    """
    if device.type == "cpu" and not computes_bfloat16():
        return torch.float32
    return torch.bfloat16


def autocast(device: torch.device) -> torch.autocast:
    """Compute products in `arithmetic`; weights and sums stay float32."""
    wanted = arithmetic(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted == torch.bfloat16)
