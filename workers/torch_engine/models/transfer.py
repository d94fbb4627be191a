"""Copy tensors from the host to the device without waiting."""

from collections.abc import Sequence

import torch
from torch import Tensor


def staged(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor whose copy to the device does not block.

    CUDA copies pageable memory only after all earlier launches, so it is pinned first.
    """
    pageable = device.type == "cuda" and tensor.device.type == "cpu"
    return tensor.pin_memory() if pageable else tensor


def on(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device, in the order of launches there."""
    return staged(tensor, device).to(device, non_blocking=True)


def indices(values: Sequence[int], device: torch.device) -> Tensor:
    """Return int64 [n] on the device."""
    return on(torch.tensor(values, dtype=torch.int64), device)
