"""The EAGLE-1 and EAGLE-2 head: one block that predicts the target's next feature."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.heads.head import Head, ScaledLinear, llama_config, size
from training.heads.rolling import Roll, RolledBlock, initialise
from training.heads.teacher import Teacher


class Eagle(Head):
    """The EAGLE head (arXiv 2401.15077), with names as in vLLM's EagleLlamaForCausalLM.

    It is fc([embedding of the next token; feature]), one block without input norm, and the target's
    LM head, of which it may read only some rows (FR-Spec, arXiv 2502.14856). A feature is the
    target's hidden state after its final norm.
    """

    kind = "eagle"
    regression = 1.0
    lm_head: Tensor

    def __init__(self, teacher: Teacher, vocabulary: Tensor | None = None) -> None:
        super().__init__(teacher, vocabulary)
        hidden = teacher.config.hidden_size
        words = teacher.lm_head if vocabulary is None else teacher.lm_head[vocabulary]
        self.register_buffer("lm_head", words, persistent=False)
        self.fc = ScaledLinear(2 * hidden, hidden)
        self.layers = nn.ModuleList([RolledBlock(teacher.config, hidden)])
        self._config = llama_config(teacher, architectures=["EagleLlamaForCausalLM"])
        initialise(self)

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        feature, roll = states[..., -1, :], Roll(documents)
        outputs: list[Tensor] = []
        for embedding in embeddings:
            x = self.fc(torch.cat((embedding, feature.to(embedding.dtype)), dim=-1)).float()
            feature = self.layers[0](x, x, roll)
            outputs.append(feature)
        return outputs

    def calibrate(self, states: Tensor) -> None:
        scales = torch.stack((size(self.embedding), size(states[..., -1, :]))).reciprocal()
        self.fc.scale.copy_(scales.repeat_interleave(states.shape[-1]))

    def logits(self, output: Tensor) -> Tensor:
        return F.linear(output, self.lm_head)

    def config(self) -> dict[str, Any]:
        return self._config

    def save(self, folder: Path) -> None:
        """Write the head and the list of tokens that it drafts."""
        super().save(folder)
        file = folder / "draft_vocabulary.json"
        file.unlink(missing_ok=True)
        if self.vocabulary is not None:
            file.write_text(json.dumps({"token_ids": self.vocabulary.tolist()}) + "\n")
