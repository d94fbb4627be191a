"""The choice of `dtype: auto`."""

import logging

import torch

from workers.bundle import Bundle
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.torch_engine.models.kernels import block_product
from workers.torch_engine.models.operators import has_amx
from workers.weight_files import PACKED

log = logging.getLogger(__name__)


def chosen(dtype: str, bundle: Bundle, device: torch.device) -> str:
    """Return `dtype`, or for "auto" the one that decodes the bundle's target fastest here.

    On GPUs that is bfloat16. On CPUs it is q4 if our kernel is built and the target comes from a
    quantised GGUF file, else bfloat16 if the CPU has AMX, else float32. It is never "int8", which
    changes the model.
    """
    if dtype != "auto":
        return dtype
    if device.type != "cpu":
        return "bfloat16"
    if (bundle.part("target") / PACKED).is_file() and _is_ours(bundle):
        if block_product.is_built():
            return "q4"
        log.warning("%s; the target is decoded in 16 or 32 bits", block_product.NOT_BUILT)
    return "bfloat16" if has_amx() else "float32"


def _is_ours(bundle: Bundle) -> bool:
    """Return whether our own forward computes the target."""
    try:
        read_shape(bundle.part("target"))
    except NotCoveredError:
        return False
    return True
