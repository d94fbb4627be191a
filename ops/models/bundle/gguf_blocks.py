"""A GGUF tensor's codes, scales and offsets, without dequantising them."""

from collections.abc import Callable
from typing import Any

import numpy as np

Groups = tuple[np.ndarray, np.ndarray, np.ndarray]
"""uint8 codes below 16 [out, in], float32 scales and offsets [out, in / 32]: weight = code * scale
+ offset."""


def read_groups(tensor: Any) -> Groups | None:
    """Return the groups of 32 weights of a matrix stored as Q4_0, Q4_1 or Q4_K, else None."""
    read = _READERS.get(tensor.tensor_type.name)
    return None if read is None or tensor.data.ndim != 2 else read(tensor.data)


def _q4_0(data: np.ndarray) -> Groups:
    blocks = data.reshape(len(data), -1, 18)
    scale = _halves(blocks[..., :2])[..., 0]
    return _nibbles(blocks[..., 2:]), scale, -8.0 * scale


def _q4_1(data: np.ndarray) -> Groups:
    blocks = data.reshape(len(data), -1, 20)
    numbers = _halves(blocks[..., :4])
    return _nibbles(blocks[..., 4:]), numbers[..., 0], numbers[..., 1]


def _q4_k(data: np.ndarray) -> Groups:
    """Eight groups share two float16 numbers, with 6-bit multiples of these for each group."""
    from gguf.quants import Q4_K

    rows, blocks = len(data), data.reshape(-1, 144)
    numbers = _halves(blocks[:, :4])
    scales, offsets = Q4_K.get_scale_min(blocks[:, 4:16])
    scale = numbers[:, :1] * scales.astype(np.float32)
    offset = -numbers[:, 1:] * offsets.astype(np.float32)
    codes = _nibbles(blocks[:, 16:].reshape(rows, -1, 32))
    return codes, scale.reshape(rows, -1), offset.reshape(rows, -1)


def _halves(data: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(data).view(np.float16).astype(np.float32)


def _nibbles(data: np.ndarray) -> np.ndarray:
    """Return codes [rows, weights] of bytes [rows, blocks, bytes]: a block's lower halves first."""
    codes: np.ndarray = np.concatenate((data & 15, data >> 4), -1)
    return codes.reshape(len(data), -1)


_READERS: dict[str, Callable[[np.ndarray], Groups]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q4_K": _q4_k,
}
