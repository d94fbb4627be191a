"""Any causal language model behind one interface, and which forward computes it."""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from workers.torch_engine.models.families import NotCoveredError
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Layout, Span
from workers.torch_engine.models.llama import Llama
from workers.torch_engine.models.operators import int8_projection
from workers.torch_engine.models.static_layout import StaticLayout

log = logging.getLogger(__name__)


class Model(Protocol):
    """A causal language model over a KvPool of its own making.

    vocab: length of a row of logits. max_positions: positions it can compute, None where nothing
    but memory bounds them. layer_count: of its layers; hidden states before each may be captured.
    embedding: [vocab, hidden], as its checkpoint has it.
    graphs: CUDA graphs of its forwards so far.
    """

    device: torch.device
    dtype: torch.dtype
    vocab: int
    max_positions: int | None
    layer_count: int
    embedding: Tensor

    @property
    def graphs(self) -> int: ...

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """A pool for `rows` sequences of `capacity` tokens and their trees."""
        ...

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout | StaticLayout:
        """Index tensors for a forward of these spans (ascending rows) over such a pool."""
        ...

    def forward(
        self, layout: Any, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Logits [wanted rows, vocab] float32 and captured hidden states, of what the model itself
        has laid out; see Llama.forward."""
        ...

    def read_out(self, states: Tensor) -> Tensor:
        """Logits [N, vocab] float32 of states [N, hidden] after the final norm."""
        ...

    def lm_head_rows(self, ids: Tensor) -> Tensor:
        """Rows [n, hidden] of the LM head as its checkpoint has it, of tokens `ids` [n]."""
        ...


def load_int8(folder: Path, device: torch.device) -> Model:
    """Load a target whose matrices are rounded to integers. Raises NotCoveredError for a model
    that our own forward does not compute, ValueError for a device other than a CPU."""
    if device.type != "cpu":
        raise ValueError("engine.dtype: int8 is computed on CPUs; on GPUs use engine.vllm")
    log.info("%s: served through our own forward, in int8", folder)
    return Llama.load(folder, torch.float32, device, int8_projection)


def load_model(folder: Path, dtype: torch.dtype, device: torch.device) -> Model:
    """Load a part in Hugging Face layout: our own forward where it computes the model, else
    transformers'. Raises BundleError for a part that cannot be loaded at all."""
    try:
        model = Llama.load(folder, dtype, device)
    except NotCoveredError as reason:
        from workers.torch_engine.models.fallback.loading import load_transformers

        fallback = load_transformers(folder, dtype, device)
        log.warning("%s; served through transformers (%s)", reason, fallback.manner)
        return fallback
    log.info("%s: served through our own forward", folder)
    return model
