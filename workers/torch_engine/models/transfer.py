"""Copy tensors from the host to the device without waiting."""

from collections.abc import Sequence

import torch
from torch import Tensor


def on(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor of the host to the device, in the order of launches there.

    CUDA copies pageable memory only after all earlier launches, so it is pinned first.
    """
    pinned = tensor.pin_memory() if device.type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)


def indices(values: Sequence[int], device: torch.device) -> Tensor:
    """Return int64 [n] on the device."""
    return on(torch.tensor(values, dtype=torch.int64), device)
