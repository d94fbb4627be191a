"""Load any causal language model behind one interface."""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from workers.bundle import Bundle
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.torch_engine.models.kernels import block_product
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Layout, Span
from workers.torch_engine.models.llama import Llama
from workers.torch_engine.models.operators import Projection, has_amx
from workers.weight_files import PACKED

log = logging.getLogger(__name__)


class Model(Protocol):
    """A causal language model over a KvPool that it makes.

    draft_projection: makes operators of drafters' matrices, which need not be exact.
    vocab: length of a row of logits. max_positions: positions that it can compute, None without a
    bound. layer_count: number of layers; the hidden states before each can be captured. embedding:
    [vocab, hidden], as in the checkpoint.
    """

    device: torch.device
    dtype: torch.dtype
    vocab: int
    max_positions: int | None
    layer_count: int
    embedding: Tensor
    draft_projection: Projection

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """Make a pool of `rows` sequences of `capacity` tokens and their trees."""
        ...

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Return index tensors for a forward of spans, whose rows ascend, over a pool."""
        ...

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return logits [wanted rows, vocab] float32 and captured states; see Llama.forward."""
        ...

    def read_out(self, states: Tensor) -> Tensor:
        """Return logits [N, vocab] float32 of states [N, hidden] after the final norm."""
        ...

    def lm_head_rows(self, ids: Tensor) -> Tensor:
        """Return rows [n, hidden] of the checkpoint's LM head, of tokens `ids` [n]."""
        ...


def chosen_dtype(dtype: str, bundle: Bundle, device: torch.device) -> str:
    """Return `dtype`, or for "auto" the one that decodes the bundle's target fastest here.

    On GPUs that is bfloat16. On CPUs it is q4 if our kernel is built and the target comes from a
    quantised GGUF file, else bfloat16 if the CPU has AMX, else float32. It is never "int8", which
    changes the model.
    """
    if dtype != "auto":
        return dtype
    if device.type != "cpu":
        return "bfloat16"
    if (bundle.part("target") / PACKED).is_file() and _is_ours(bundle.part("target")):
        if block_product.is_built():
            return "q4"
        log.warning("%s; the target is decoded in 16 or 32 bits", block_product.NOT_BUILT)
    return "bfloat16" if has_amx() else "float32"


def _is_ours(folder: Path) -> bool:
    """Return whether our own forward computes a model."""
    try:
        read_shape(folder)
    except NotCoveredError:
        return False
    return True


def load_target(folder: Path, dtype: str, device: torch.device) -> Model:
    """Load a target in `dtype`: float32, bfloat16, int8 (matrices rounded to integers) or q4 (the
    4-bit weights of its GGUF file).

    Raises NotCoveredError for int8 or q4 of a model that our own forward does not compute,
    ValueError for them on a device other than a CPU or without the kernel (see block_product),
    BundleError for a part that cannot be loaded.
    """
    if dtype not in ("int8", "q4"):
        return load_model(folder, getattr(torch, dtype), device)
    if device.type != "cpu":
        raise ValueError(f"engine.dtype: {dtype} is computed on CPUs; on GPUs use engine.vllm")
    if not block_product.is_built():
        raise ValueError(block_product.NOT_BUILT)
    if dtype == "q4":
        return Llama.load_packed(folder)
    log.info("%s: served through our own forward, in int8", folder)
    return Llama.load(folder, torch.float32, device, block_product.BlockProduct)


def load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Model:
    """Load a part in Hugging Face layout, through our own forward or else through transformers.

    Raises BundleError for a part that cannot be loaded at all.
    """
    try:
        model = Llama.load(folder, dtype, device)
    except NotCoveredError as reason:
        from workers.torch_engine.models.fallback import load_transformers

        fallback = load_transformers(folder, dtype, device)
        log.warning("%s; served through transformers (%s)", reason, fallback.manner)
        return fallback
    log.info("%s: served through our own forward", folder)
    return model
