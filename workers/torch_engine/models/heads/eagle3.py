"""EAGLE-3's head (Li et al. 2025, arXiv 2503.01840): what vLLM calls LlamaForCausalLMEagle3."""

from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.models.heads.checkpoint import DraftVocabulary
from workers.torch_engine.models.heads.feature_head import FeatureHead, wanted
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layer import build_layer
from workers.torch_engine.models.layout import Layout
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.operators import projection, rms_norm
from workers.torch_engine.models.tensors import Dims, block_tensors
from workers.torch_engine.models.weights import Take

NOT_COMPUTED = ("norm_before_fc", "fc_norm", "norm_output", "parallel_drafting")
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


class Eagle3Head(FeatureHead):
    """One block over [norm(embedding(x_{t+1})); norm(feature(x_t))], with an LM head of its own.

    A feature of the target is fc of several of its hidden states; a feature of the head is its own
    state before the last norm. The residual stream begins with the feature, or with its norm if the
    config sets `norm_before_residual`.
    """

    optional: ClassVar[dict[str, Dims]] = {"d2t": (None,), "t2d": (None,)}

    def _tensors(self) -> dict[str, Dims]:
        hidden = self.shape.hidden
        names = ("midlayer.hidden_norm.weight", "norm.weight")
        return {
            "fc.weight": (hidden, None),
            "lm_head.weight": (None, hidden),
            **dict.fromkeys(names, (hidden,)),
            **block_tensors(self.shape, "midlayer.", 2 * hidden),
        }

    def _build(self, folder: Path, target: Model, weights: dict[str, Tensor], take: Take) -> None:
        eagle: dict[str, Any] = self.config.get("eagle_config") or {}
        for name in NOT_COMPUTED:
            if eagle.get(name, self.config.get(name)):
                raise BundleError(f"{folder}/config.json: {name} is not computed here")
        if not eagle.get("use_aux_hidden_state", True):
            raise BundleError(f"{folder}/config.json: use_aux_hidden_state must be true here")
        self.captures = captured_layers(self.config, target.layer_count)
        fc = take("fc.weight")
        width = len(self.captures) * self.shape.hidden
        if fc.shape[1] != width or self.captures[-1] >= target.layer_count:
            raise BundleError(
                f"{folder}: fc.weight takes {fc.shape[1]} values; the states before layers "
                f"{self.captures} of a target with {target.layer_count} layers have {width}"
            )
        project = target.draft_projection
        self._fc = projection(fc)
        self._layer = build_layer(take, self.shape, 0, prefix="midlayer.", project=project)
        self._hidden_norm = rms_norm(take("midlayer.hidden_norm.weight"), self.shape.eps)
        self._norm_first = bool(self.config.get("norm_before_residual"))
        self._norm = rms_norm(take("norm.weight"), self.shape.eps)
        head = take("lm_head.weight")
        self._read_out = project(head, None)
        ids = _draft_ids(folder, weights["d2t"], len(head)) if "d2t" in weights else None
        ids = None if ids is None else ids.to(target.device)
        self._vocabulary = DraftVocabulary(folder, len(head), ids, target.vocab)

    def combine(self, states: Tensor) -> Tensor:
        """See FeatureHead."""
        return self._fc(states)

    def _compute(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, Tensor]:
        embedded = self._layer.input_norm(F.embedding(layout.tokens, self.embedding))
        normed = self._hidden_norm(features)
        heard = self.attend(torch.cat((embedded, normed), -1), self._layer, layout, pool)
        x = wanted((normed if self._norm_first else features) + heard, layout)
        x = self.block.feed_forward(x, self._layer)
        return x, self._read_out(self._norm(x))


def _draft_ids(folder: Path, offsets: Tensor, size: int) -> Tensor:
    """Return the target's token of each row of the LM head: its index plus the offset in `d2t`."""
    if offsets.shape != (size,) or offsets.is_floating_point():
        raise BundleError(
            f"{folder}: d2t is {offsets.dtype} {list(offsets.shape)}; the LM head has {size} rows, "
            "which need an integer each"
        )
    return torch.arange(size) + offsets


def capture_layers(layers: int) -> tuple[int, ...]:
    """Return the layers whose inputs a new head reads: vLLM's (2, L/2, L - 3).

    If these are not three layers, take the first, the middle and the last. Raises ValueError for a
    target of fewer than three layers.
    """
    if layers < 3:
        raise ValueError(f"target: EAGLE-3 reads three layers' inputs, the target has {layers}")
    usual = (2, layers // 2, layers - 3)
    return usual if usual[0] < usual[1] < usual[2] else (0, layers // 2, layers - 1)


def captured_layers(config: dict[str, Any], layers: int) -> tuple[int, ...]:
    """Return the layers whose inputs are concatenated, in ascending order as vLLM does it."""
    eagle: dict[str, Any] = config.get("eagle_config") or {}
    named = eagle.get(LAYER_IDS) or config.get(LAYER_IDS)
    return tuple(sorted(set(named or (2, layers // 2, layers - 3))))
