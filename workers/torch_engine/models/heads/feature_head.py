"""Heads of one decoder block that predict the target's next feature, token by token."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workers.bundle import BundleError
from workers.head_files import load_weights
from workers.torch_engine.models.block import Block
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.families import read_shape
from workers.torch_engine.models.heads.checkpoint import DraftVocabulary, read_config
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layer import Layer
from workers.torch_engine.models.layout import Layout
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.weights import Checkpoint


class FeatureHead(ABC):
    """A head with a KV pool of its own.

    Slot i of a row holds the pair (token i + 1, feature of token i), at rotary position i.
    captures: the target's hidden states that make a feature, in the order of their concatenation.
    """

    captures: tuple[int, ...]
    _vocabulary: DraftVocabulary
    _layer: Layer

    def __init__(self, folder: Path, target: Model) -> None:
        """Load a head. Raises BundleError if it is of another target or is not computed here."""
        self.config: dict[str, Any] = read_config(folder, target)
        self.shape = read_shape(folder)
        kind, layers = self.config.get("model_type"), self.shape.layers
        if kind != "llama" or layers != 1:
            raise BundleError(
                f"{folder}/config.json: model_type {kind!r} with {layers} layers is not computed "
                "here: a head is one block of model_type 'llama'"
            )
        self.block = Block(self.shape, target.dtype, target.device)
        self._device = target.device
        self._rotary = torch.empty(0)
        # Not an attribute: the checkpoint is freed once the operators are built.
        checkpoint = Checkpoint(folder, load_weights(folder), target.dtype, target.device)
        self.embedding, name = target.embedding, "embed_tokens.weight"
        if name in checkpoint:
            self.embedding = checkpoint.take(name, target.vocab, self.shape.hidden)
        self._build(checkpoint, target)
        checkpoint.finish()

    @abstractmethod
    def _build(self, checkpoint: Checkpoint, target: Model) -> None:
        """Build the operators from a checkpoint's tensors."""

    def use(self, pool: KvPool) -> None:
        """Prepare for forwards over a pool, which a head of the same shape has made."""
        (attention,) = self.shape.each_attention
        self._rotary = attention.rotary.table(pool.capacity, self.shape.head_dim, self._device)

    def combine(self, states: Tensor) -> Tensor:
        """Return features [N, hidden] of captured states [N, captures * hidden]."""
        return states

    def forward(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, DraftLogits]:
        """Read the pairs of the layout's tokens and `features` [N, hidden].

        Return the predicted features [rows, hidden], which are read with the tokens that follow,
        and the logits of the rows whose logits are wanted.
        """
        predicted, logits = self._compute(features, layout, pool)
        return predicted, self._vocabulary.logits(logits)

    @abstractmethod
    def _compute(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, Tensor]:
        """Compute `forward` with logits [rows, size] in any dtype."""

    def attend(self, x: Tensor, residual: Tensor, layout: Layout, pool: KvPool) -> Tensor:
        """Return the residual stream [N, hidden] after attention, which reads x."""
        (cache,) = pool.view(layout.first, layout.sequences, layout.context)
        rotary = self._rotary[layout.positions]
        return self.block.attend(x, residual, self._layer, cache, layout, rotary)


def wanted(x: Tensor, layout: Layout) -> Tensor:
    """Return the rows of x [N, features] whose logits are wanted."""
    return x if layout.logit_rows is None else x[layout.logit_rows]
