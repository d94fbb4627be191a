"""The EAGLE-3 head: one block over three of the target's hidden states, with its own LM head."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig

from training.heads.head import Head, ScaledLinear, llama_config, size
from training.heads.rolling import Roll, RolledBlock, initialise
from training.heads.teacher import Teacher
from workers.torch_engine.models.heads.eagle3 import capture_layers


class Midlayer(RolledBlock):
    """The block of EAGLE-3, which attends over [norm(embedding); norm(feature)]."""

    def __init__(self, config: LlamaConfig) -> None:
        hidden, eps = config.hidden_size, config.rms_norm_eps
        super().__init__(config, 2 * hidden)
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.hidden_norm = nn.RMSNorm(hidden, eps=eps)

    def step(self, embedding: Tensor, feature: Tensor, roll: Roll) -> Tensor:
        """Return the next feature [b, t, hidden] of an embedding and a feature [b, t, hidden]."""
        normed = (self.input_layernorm(embedding.float()), self.hidden_norm(feature))
        out: Tensor = self(feature, torch.cat(normed, dim=-1), roll)
        return out


class Eagle3(Head):
    """The EAGLE-3 head (arXiv 2503.01840), with names as in vLLM's Eagle3LlamaForCausalLM.

    It reads the inputs of some layers through `fc`, feeds its block's output (before the final
    norm) back, and has its own vocabulary.
    """

    kind = "eagle3"

    def __init__(
        self,
        teacher: Teacher,
        vocabulary: Tensor | None,
        captures: tuple[int, ...] | None = None,
    ) -> None:
        """Make a new head. `captures` replaces the layers of `capture_layers`."""
        super().__init__(teacher, vocabulary)
        hidden = teacher.config.hidden_size
        self.captures = captures or capture_layers(teacher.layers)
        self.fc = ScaledLinear(len(self.captures) * hidden, hidden)
        self.midlayer = Midlayer(teacher.config)
        self.norm = nn.RMSNorm(hidden, eps=teacher.config.rms_norm_eps)
        words = teacher.lm_head if vocabulary is None else teacher.lm_head[vocabulary]
        self.lm_head = nn.Linear(hidden, len(words), bias=False)
        self._config = llama_config(
            teacher,
            architectures=["LlamaForCausalLMEagle3"],
            draft_vocab_size=len(words),
            tie_word_embeddings=False,
            eagle_config={
                "eagle_aux_hidden_state_layer_ids": list(self.captures),
                "use_aux_hidden_state": True,
            },
        )
        initialise(self)
        self.lm_head.weight.data.copy_(words)
        self.norm.weight.data.copy_(teacher.norm)

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        roll = Roll(documents)
        feature: Tensor = self.fc(states[..., :-1, :].flatten(-2)).float()
        outputs = []
        for embedding in embeddings:
            feature = self.midlayer.step(embedding, feature, roll)
            outputs.append(feature)
        return outputs

    def calibrate(self, states: Tensor) -> None:
        scales = torch.stack([size(s) for s in states[..., :-1, :].unbind(-2)]).reciprocal()
        self.fc.scale.copy_(scales.repeat_interleave(states.shape[-1]))

    def logits(self, output: Tensor) -> Tensor:
        out: Tensor = self.lm_head(self.norm(output))
        return out

    def tensors(self) -> dict[str, Tensor]:
        weights = super().tensors()
        if self.vocabulary is not None:
            ids = self.vocabulary.cpu()
            weights["d2t"] = ids - torch.arange(len(ids))
        return weights

    def config(self) -> dict[str, Any]:
        return self._config
