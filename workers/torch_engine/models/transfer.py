"""From the host to the device without waiting for it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def staged(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor where a copy to the device can begin from at once: CUDA copies pageable memory
    only after everything that was launched before."""
    pageable = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory() if pageable else tensor


def on(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device, which it reaches in the order of what is launched there."""
    return staged(tensor, device).to(device, non_blocking=True)


def indices(values: Sequence[int], device: torch.device) -> Tensor:
    """int64 [n] on the device."""
    return on(torch.tensor(values, dtype=torch.int64), device)
