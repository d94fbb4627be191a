"""Medusa's heads (Cai et al. 2024, arXiv 2401.10774), in the layout of vLLM's MedusaModel."""

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.bundle import BundleError
from workers.head_files import load_weights
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.heads.checkpoint import DraftVocabulary, read_config
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.operators import Operator
from workers.torch_engine.models.weights import Checkpoint


class MedusaHeads:
    """Compute heads: head k reads x + SiLU(W_k x + b_k), of one or several layers, with an LM
    head; x is the target's final state.

    The first layers of all heads are one product. LM heads are `lm_heads.k.weight`, or
    `lm_head.weight` for all of them. `token_map` [draft vocab]: the tokens of the draft vocabulary,
    to which LM heads of the whole vocabulary are cut. count: number of heads.
    """

    def __init__(self, folder: Path, target: Model) -> None:
        config, weights = read_config(folder, target), load_weights(folder)
        checkpoint = Checkpoint(folder, weights, target.dtype, target.device)
        take, hidden = checkpoint.take, int(config["hidden_size"])
        self.count = sum(name.endswith(".layers.0.weight") for name in weights)
        depth = sum(name.startswith("blocks.0.") and name.endswith(".weight") for name in weights)
        if not self.count or not depth:
            raise BundleError(f"{folder}: the weights have no tensor 'blocks.0.layers.0.weight'")
        self._hidden = hidden

        def layer(heads: Sequence[int], index: int) -> Operator:
            names = [f"blocks.{head}.layers.{index}." for head in heads]
            biased = names[0] + "bias" in checkpoint
            return target.draft_projection(
                torch.cat([take(name + "weight", hidden, hidden) for name in names]),
                torch.cat([take(name + "bias", hidden) for name in names]) if biased else None,
            )

        self._first = layer(range(self.count), 0)
        self._deeper = [[layer([h], i) for h in range(self.count)] for i in range(1, depth)]
        ids = weights.get("token_map")
        ids = None if ids is None else ids.long()
        shared, own = "lm_head.weight", [f"lm_heads.{k}.weight" for k in range(self.count)]
        names = own
        if config.get("original_lm_head"):
            names = [shared if shared in checkpoint else own[0]]
        heads = [take(name, None, hidden) for name in names]
        checkpoint.finish("token_map", shared, *own)
        if ids is not None:
            heads = [_cut(folder, head, ids) for head in heads]
        self._read_outs = [target.draft_projection(head, None) for head in heads]
        self._vocabulary = DraftVocabulary(folder, len(heads[0]), ids, target)

    def forward(self, states: Tensor) -> list[DraftLogits]:
        """Return each head's logits for the target's final states [N, hidden]."""
        return [self._vocabulary.logits(each) for each in self._compute(states).unbind()]

    def _compute(self, states: Tensor) -> Tensor:
        """Return logits [heads, N, size] in the dtype of `states`."""
        first = self._first(states).view(-1, self.count, self._hidden)
        x = (states[:, None] + F.silu(first)).transpose(0, 1)
        for layer in self._deeper:
            x = torch.stack([h + F.silu(w(h)) for h, w in zip(x.unbind(), layer, strict=True)])
        if len(self._read_outs) == 1:
            logits = self._read_outs[0](x.reshape(-1, self._hidden))
            return logits.view(self.count, len(states), -1)
        return torch.stack([read(x[head]) for head, read in enumerate(self._read_outs)])


def _cut(folder: Path, head: Tensor, ids: Tensor) -> Tensor:
    """Return the rows of an LM head for these tokens; it may have only theirs already."""
    if len(head) <= len(ids):
        return head
    if not 0 <= int(ids.min()) <= int(ids.max()) < len(head):
        raise BundleError(
            f"{folder}: 'token_map' maps to tokens {int(ids.min())} .. {int(ids.max())}, the LM "
            f"head has {len(head)} rows"
        )
    return head[ids]
