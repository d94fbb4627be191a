"""Medusa heads: residual blocks over the target's last hidden state, one per drafted position."""

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from training.heads.head import Head
from training.heads.teacher import Teacher


class ResidualBlock(nn.Module):
    """`layers` times x + SiLU(W x + b), initially the identity."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


class Medusa(Head):
    """Medusa-1 (arXiv 2401.10774) with one LM head for all positions, initially the target's.

    Names are as in vLLM's Medusa. Head j drafts position j, since the target gives the first token.
    """

    kind = "medusa"

    def __init__(
        self, teacher: Teacher, vocabulary: Tensor | None, positions: int = 4, layers: int = 1
    ) -> None:
        super().__init__(teacher, vocabulary)
        hidden = teacher.config.hidden_size
        self.blocks = nn.ModuleList(ResidualBlock(hidden, layers) for _ in range(positions))
        words = teacher.lm_head if vocabulary is None else teacher.lm_head[vocabulary]
        self.lm_head = nn.Linear(hidden, len(words), bias=False)
        self.lm_head.weight.data.copy_(words)
        self._config = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": hidden,
            "vocab_size": len(teacher.lm_head),
            "truncated_vocab_size": len(words),
            "num_heads": positions,
            "num_hidden_layers": layers,
            "medusa_fc_bias": True,
            "original_lm_head": True,
            "torch_dtype": "bfloat16",
        }

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        """Draft positions independently, without embeddings."""
        del documents
        feature = states[..., -1, :].float()
        blocks = list(self.blocks)[: len(embeddings)]
        return [block(feature) for block in blocks]

    def logits(self, output: Tensor) -> Tensor:
        out: Tensor = self.lm_head(output)
        return out

    def tensors(self) -> dict[str, Tensor]:
        weights = super().tensors()
        if self.vocabulary is not None:
            weights["token_map"] = self.vocabulary.cpu()
        return weights

    def config(self) -> dict[str, Any]:
        return self._config
