"""The base of models that run through transformers' own forward."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Layout, Span
from workers.torch_engine.models.operators import Projection, projection


class TransformersModel(ABC):
    """A transformers causal LM. `manner`: how it runs, for the log."""

    manner: str

    def __init__(self, causal: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.causal, self.dtype, self.device = causal, dtype, device
        config = causal.config.get_text_config()
        self.vocab: int = config.vocab_size
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.layer_count: int = config.num_hidden_layers
        self.draft_projection: Projection = projection
        self.embedding: Tensor = causal.get_input_embeddings().weight

    graphs = 0

    @abstractmethod
    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """Make a pool of `rows` sequences of `capacity` tokens and their trees."""

    @abstractmethod
    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Return index tensors for a forward of spans, whose rows ascend, over a pool."""

    @abstractmethod
    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return logits [wanted rows, vocab] float32 and captured states; see Llama.forward."""

    def read_out(self, states: Tensor) -> Tensor:
        """Return logits [N, vocab] float32 of states [N, hidden] after the final norm."""
        logits: Tensor = self.causal.get_output_embeddings()(states)
        return logits.float()

    def lm_head_rows(self, ids: Tensor) -> Tensor:
        """See Model."""
        rows: Tensor = self.causal.get_output_embeddings().weight[ids]
        return rows


def padded(values: Tensor, layout: Layout) -> Tensor:
    """Return one value per token [N] as [S, width]."""
    padded = values if layout.pad is None else values[layout.pad]
    return padded.view(layout.sequences, layout.width)


def unpadded(values: Tensor, layout: Layout) -> Tensor:
    """Return [S, width, ...] as one row per token [N, ...]."""
    flat = values.flatten(0, 1)
    return flat if layout.unpad is None else flat[layout.unpad]
