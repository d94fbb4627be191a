"""EAGLE's head (Li et al. 2024, arXiv 2401.15077): what vLLM calls EagleLlamaForCausalLM."""

from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.torch_engine.models.heads.checkpoint import DraftVocabulary, listed_tokens
from workers.torch_engine.models.heads.feature_head import FeatureHead, wanted
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layer import build_layer
from workers.torch_engine.models.layout import Layout
from workers.torch_engine.models.llama import FINAL
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.operators import projection
from workers.torch_engine.models.tensors import Dims, block_tensors
from workers.torch_engine.models.weights import Take


class EagleHead(FeatureHead):
    """One block without input norm over fc([embedding(x_{t+1}); feature(x_t)]).

    Features, in and out, are states that the target's LM head reads. A checkpoint may hold its own
    embedding, LM head and bias of fc. draft_vocabulary.json restricts the LM head to the listed
    tokens: with a large vocabulary, the LM head takes most of a level's time (FR-Spec, arXiv
    2502.14856).
    """

    captures = (FINAL,)
    optional: ClassVar[dict[str, Dims]] = {
        "fc.bias": (None,),
        "lm_head.weight": (None, None),
    }

    def _tensors(self) -> dict[str, Dims]:
        hidden = self.shape.hidden
        block = block_tensors(self.shape, "layers.0.", hidden, input_norm=False)
        return {"fc.weight": (hidden, 2 * hidden), **block}

    def _build(self, folder: Path, target: Model, weights: dict[str, Tensor], take: Take) -> None:
        project = target.draft_projection
        self._fc = projection(take("fc.weight"), take("fc.bias") if "fc.bias" in weights else None)
        self._layer = build_layer(
            take, self.shape, 0, prefix="layers.0.", input_norm=False, project=project
        )
        words = take("lm_head.weight") if "lm_head.weight" in weights else None
        ids = listed_tokens(folder)
        ids = None if ids is None else ids.to(target.device)
        known = target.vocab if words is None else len(words)
        self._vocabulary = DraftVocabulary(
            folder, known if ids is None else len(ids), ids, target.vocab
        )
        if ids is not None:
            words = target.lm_head_rows(ids) if words is None else words[ids]
        # The target's LM head is laid out for its kernel already.
        self._own_read_out = None if words is None else project(words, None)
        self._target = target

    def _compute(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, Tensor]:
        embedded = F.embedding(layout.tokens, self.embedding)
        x = self._fc(torch.cat((embedded, features), -1))
        x = wanted(x + self.attend(x, self._layer, layout, pool), layout)
        x = self.block.feed_forward(x, self._layer)
        read_out = self._own_read_out or self._target.read_out
        return x, read_out(x)
