"""Turn batches into the tensors that a head's loss takes."""

import torch
from torch import Tensor

from training.heads.packing import HeadBatch


def batch_tensors(
    batch: HeadBatch, states: Tensor, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return a batch's tensors on the device.

    These are labels int64 [b, t], documents int64 [b, t], states [b, t, captures + 1, hidden],
    slots int64 [n] and weights float32 [n, positions].
    """
    labels, documents, slots, weights = (
        torch.from_numpy(a).to(device, non_blocking=True)
        for a in (batch.labels, batch.documents, batch.slots, batch.weights)
    )
    return labels, documents, states, slots, weights
