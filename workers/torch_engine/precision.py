"""The choice of `dtype: auto`."""

import torch

from workers.bundle import Bundle
from workers.torch_engine.models.block_weights import PACKED
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.torch_engine.models.operators import has_amx


def chosen(dtype: str, bundle: Bundle, device: torch.device) -> str:
    """Return `dtype`, or for "auto" the one that decodes the bundle's target fastest here.

    That is bfloat16 on GPUs. On CPUs it is q4 where the target has 4-bit weights of its own; else
    bfloat16 where the CPU multiplies tiles of it, and float32 on others, whose bfloat16 products
    take longer. Never "int8", which makes another model of the target.
    """
    if dtype != "auto":
        return dtype
    if device.type != "cpu":
        return "bfloat16"
    folder = bundle.part("target")
    if (folder / PACKED).is_file() and _is_ours(bundle):
        return "q4"
    return "bfloat16" if has_amx() else "float32"


def _is_ours(bundle: Bundle) -> bool:
    """Return whether our own forward computes the target."""
    try:
        read_shape(bundle.part("target"))
    except NotCoveredError:
        return False
    return True
