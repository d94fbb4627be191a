"""The forward of Llama and its relatives: fused weights, our own KV pool, several sequences."""

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.head_files import load_weights
from workers.torch_engine.models.block import Block
from workers.torch_engine.models.families import read_shape
from workers.torch_engine.models.kernels.block_product import (
    BlockProduct,
    copy_pays,
    packed_projection,
)
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layer import build_layer, norm_taker
from workers.torch_engine.models.layout import Layout, Span, windowed
from workers.torch_engine.models.operators import Projection, RmsNorm, projection
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.weights import (
    EMBEDDING,
    Checkpoint,
    is_packed,
    load_model_weights,
    load_packed_weights,
)
from workers.weight_files import stored_tensors

log = logging.getLogger(__name__)

LM_HEAD = "lm_head.weight"
MEMORY_SHARE = 0.25
"""Share of the available memory that a second copy of the weights may take."""
FINAL = -1
"""Capture index of the last hidden state after the final norm (what the LM head reads)."""


class Llama:
    """Weights of a Llama-like model and its forward over a KvPool.

    The constructor decides on features, so that the forward of a model without them runs no
    operation for them.
    """

    def __init__(
        self, shape: LlamaShape, checkpoint: Checkpoint, project: Projection = projection
    ) -> None:
        """Build the forward from a checkpoint's weights. Raises BundleError for those of another
        model."""
        dtype, device, take = checkpoint.dtype, checkpoint.device, checkpoint.take
        self.shape, self.dtype, self.device = shape, dtype, device
        self.vocab, self.max_positions = shape.vocab, shape.max_positions
        self.layer_count = shape.layers
        self.draft_projection: Projection = projection
        self._block = Block(shape, dtype, device)
        self.embedding = take(EMBEDDING, shape.vocab, shape.hidden)
        # Rounded as in transformers.
        self._scale = torch.tensor(shape.embedding_scale, dtype=dtype).item()
        self._folder = checkpoint.folder
        self._tied = shape.tied and LM_HEAD not in checkpoint
        head = self.embedding if self._tied else take(LM_HEAD, shape.vocab, shape.hidden)
        self._read_out = project(head, None)
        self._norm = RmsNorm(norm_taker(take, shape)("model.norm.weight", shape.hidden), shape.eps)
        attentions = shape.each_attention
        self._rotaries = list(dict.fromkeys(a.rotary for a in attentions))
        self._windows = list(dict.fromkeys(a.window for a in attentions))
        self.layers = [
            replace(
                build_layer(
                    checkpoint.below(f"model.layers.{index}."), shape, index, project=project
                ),
                rotary=self._rotaries.index(attention.rotary),
                view=self._windows.index(attention.window),
            )
            for index, attention in enumerate(attentions)
        ]
        checkpoint.finish()
        self._tables: dict[int, list[Tensor]] = {}

    @staticmethod
    def load(
        folder: Path,
        dtype: torch.dtype,
        device: torch.device,
        project: Projection = projection,
    ) -> "Llama":
        """Load a part in Hugging Face layout (safetensors, one file or several).

        Raises NotCoveredError for a config this forward does not compute, BundleError for a part
        without config.json or whose weights do not fit it.
        """
        shape = read_shape(folder)
        return Llama(shape, Checkpoint(folder, load_model_weights(folder), dtype, device), project)

    @staticmethod
    def load_packed(folder: Path) -> "Llama":
        """Load a part for a CPU with the 4-bit weights of its GGUF file as they are stored, and
        the others in 8 bits.

        Raises as `load` does, and BundleError for a part that is of no quantised file.
        """
        import psutil  # not there where only torch and transformers are

        shape = read_shape(folder)
        weights = load_packed_weights(folder)
        packed = [name for name, weight in weights.items() if is_packed(weight)]
        stored = stored_tensors(folder)
        copied = sum(2 * math.prod(stored[name].shape) for name in packed)
        fits = copied <= MEMORY_SHARE * psutil.virtual_memory().available
        copies = bool(packed) and fits and copy_pays(weights[packed[0]])
        log.info(
            "%s: 4-bit weights, %s a 16-bit copy of %d MB for prefills",
            *(folder, "with" if copies else "without", copied / 1e6),
        )
        project = partial(packed_projection, copies=copies)
        checkpoint = Checkpoint(folder, weights, torch.float32, torch.device("cpu"))
        model = Llama(shape, checkpoint, project)
        model.draft_projection = BlockProduct
        return model

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """Make a KV pool of `rows` sequences of `capacity` tokens and their trees."""
        return self._block.make_pool(self.shape.layers, rows, capacity)

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Return index tensors for a forward of spans, whose rows ascend, over a pool."""
        return self._block.lay_out(spans, pool)

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return logits [wanted rows, vocab] float32 and captured states [N, hidden] in `dtype`.

        captures: i in 0 .. layers-1 is the residual stream that enters layer i, FINAL the state
        after the final norm. Keys and values are written to the pool; nothing is committed.
        """
        block, hidden = self._block, dict[int, Tensor]()
        x = F.embedding(layout.tokens, self.embedding)
        if self._scale != 1.0:
            x = x * self._scale
        rotaries = [table[layout.positions] for table in self._rotations(pool.capacity)]
        views = self._views(layout)
        caches = pool.view(layout.first, layout.sequences, layout.context)
        for index, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            if index in captures:
                hidden[index] = x
            view, rotary = views[layer.view], rotaries[layer.rotary]
            x = block.feed_forward(block.attend(x, x, layer, cache, view, rotary), layer)
        if FINAL in captures:
            hidden[FINAL] = x = self._norm(x)
        if layout.logit_rows is not None:
            x = x[layout.logit_rows]
        if FINAL not in captures:
            x = self._norm(x)
        return self.read_out(x), hidden

    def read_out(self, states: Tensor) -> Tensor:
        """Return logits [N, vocab] float32 of states [N, hidden] after the final norm."""
        logits, cap = self._read_out(states).float(), self.shape.logit_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def lm_head_rows(self, ids: Tensor) -> Tensor:
        """See Model."""
        if self._tied:
            return self.embedding[ids]
        # those laid out for a kernel cannot be read
        rows = load_weights(self._folder)[LM_HEAD][ids.cpu()]
        return rows.to(device=self.device, dtype=self.dtype)

    def _views(self, layout: Layout) -> list[Layout]:
        """Return the layout of each kind of layer."""
        groups, dtype = self._block.groups, self._block.kv_dtype
        return [
            layout if window is None else windowed(layout, window, groups, dtype)
            for window in self._windows
        ]

    def _rotations(self, positions: int) -> list[Tensor]:
        """Return the rotary tables [positions, 1, head_dim / 2] of this model's layers."""
        if positions not in self._tables:
            dim, device = self.shape.head_dim, self.device
            tables = [rotary.table(positions, dim, device) for rotary in self._rotaries]
            self._tables[positions] = tables
        return self._tables[positions]
