"""4-bit weights in groups of 32, as a GGUF file stores them.

A weight [out, in] is stored as bytes (torch.uint8) [out, in / 32 * 24]. Its rows can therefore be
split, joined and reordered like those of a plain weight. A group is a float32 scale, a float32
offset and 16 bytes with two codes each: weight = code * scale + offset.
"""

import torch
from torch import Tensor

GROUP = 32
_NUMBERS = 8
"""Bytes of a group's scale and offset."""


def pack(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Return the bytes of codes uint8 [out, in] with scales and offsets [out, in / 32]."""
    grouped = codes.view(len(codes), -1, GROUP)
    pairs = grouped[..., : GROUP // 2] | grouped[..., GROUP // 2 :] << 4
    numbers = torch.stack((scale, offset), -1).float().view(torch.uint8)
    return torch.cat((numbers, pairs), -1).flatten(1)


def parts(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes uint8 [out, groups, 32], and float32 scales and offsets [out, groups]."""
    groups = weight.view(len(weight), -1, _NUMBERS + GROUP // 2)
    pairs = groups[..., _NUMBERS:]
    numbers = groups[..., :_NUMBERS].contiguous().view(torch.float32)
    return torch.cat((pairs & 15, pairs >> 4), -1), numbers[..., 0], numbers[..., 1]


def is_packed(weight: Tensor) -> bool:
    """Return whether a weight is stored in groups."""
    return weight.dtype == torch.uint8


def unpacked(weight: Tensor) -> Tensor:
    """Return the bfloat16 matrix [out, in] that bytes stand for, as the importer rounds it."""
    codes, scale, offset = parts(weight)
    return (codes * scale[..., None] + offset[..., None]).flatten(1).bfloat16()
