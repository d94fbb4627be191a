"""The heads of EAGLE (arXiv 2401.15077) and EAGLE-3 (arXiv 2503.01840): what vLLM calls
EagleLlamaForCausalLM and LlamaForCausalLMEagle3."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.models.heads.checkpoint import DraftVocabulary, listed_tokens
from workers.torch_engine.models.heads.feature_head import FeatureHead, wanted
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layer import build_layer
from workers.torch_engine.models.layout import Layout
from workers.torch_engine.models.llama import FINAL
from workers.torch_engine.models.model import Model
from workers.torch_engine.models.operators import RmsNorm
from workers.torch_engine.models.weights import Checkpoint, Take


class EagleHead(FeatureHead):
    """One block without input norm over fc([embedding(x_{t+1}); feature(x_t)]).

    Features, in and out, are states that the target's LM head reads. A checkpoint may hold its own
    embedding, LM head and bias of fc. draft_vocabulary.json restricts the LM head to the listed
    tokens: with a large vocabulary, the LM head takes most of a level's time (FR-Spec, arXiv
    2502.14856).
    """

    captures = (FINAL,)

    def _build(self, checkpoint: Checkpoint, target: Model) -> None:
        project, take, hidden = target.draft_projection, checkpoint.take, self.shape.hidden
        bias = take("fc.bias", hidden) if "fc.bias" in checkpoint else None
        self._fc = project(take("fc.weight", hidden, 2 * hidden), bias)
        below = checkpoint.below("layers.0.")
        self._layer = build_layer(below, self.shape, 0, width=hidden, project=project)
        name = "lm_head.weight"
        words = take(name, None, hidden) if name in checkpoint else None
        ids = listed_tokens(checkpoint.folder)
        known = target.vocab if words is None else len(words)
        size = known if ids is None else len(ids)
        self._vocabulary = DraftVocabulary(checkpoint.folder, size, ids, target)
        if ids is not None:
            words = target.lm_head_rows(ids) if words is None else words[ids]
        # The target's LM head is laid out for its kernel already.
        self._own_read_out = None if words is None else project(words, None)
        self._target = target

    def _compute(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, Tensor]:
        embedded = F.embedding(layout.tokens, self.embedding)
        x = self._fc(torch.cat((embedded, features), -1))
        x = wanted(self.attend(x, x, layout, pool), layout)
        x = self.block.feed_forward(x, self._layer)
        read_out = self._own_read_out or self._target.read_out
        return x, read_out(x)


NORMS = ("norm_before_fc", "fc_norm", "norm_output")
"""Fields of speculators' checkpoints that add norms."""
NOT_COMPUTED = ("parallel_drafting",)
LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


class Eagle3Head(FeatureHead):
    """One block over [norm(embedding(x_{t+1})); norm(feature(x_t))], with an LM head of its own.

    A feature of the target is fc of several of its hidden states; a feature of the head is its own
    state before the last norm, or after it if the config sets `norm_output`. The residual stream
    begins with the feature, or with its norm if the config sets `norm_before_residual`. The states
    pass a norm on their way to fc, all in one (`norm_before_fc`) or each its own (`fc_norm`).
    """

    def _build(self, checkpoint: Checkpoint, target: Model) -> None:
        folder, take, hidden = checkpoint.folder, checkpoint.take, self.shape.hidden
        for name in filter(self._sets, NOT_COMPUTED):
            raise BundleError(f"{folder}/config.json: {name} is not computed here")
        if not (self.config.get("eagle_config") or {}).get("use_aux_hidden_state", True):
            raise BundleError(f"{folder}/config.json: use_aux_hidden_state must be true here")
        self.captures = captured_layers(self.config, target.layer_count)
        fc = take("fc.weight", hidden, None)
        width = len(self.captures) * hidden
        if fc.shape[1] != width or self.captures[-1] >= target.layer_count:
            raise BundleError(
                f"{folder}: fc.weight takes {fc.shape[1]} values; the states before layers "
                f"{self.captures} of a target with {target.layer_count} layers have {width}"
            )
        project = target.draft_projection
        self._fc = project(fc, None)
        count, together = len(self.captures), self._sets("norm_before_fc")
        self._states_norm = self._norm_of(take, "input_norm", count) if together else None
        each = range(count) if self._sets("fc_norm") else ()
        self._norm_of_each = [self._norm_of(take, f"fc_norm.{i}") for i in each]
        below = checkpoint.below("midlayer.")
        self._layer = build_layer(below, self.shape, 0, width=2 * hidden, project=project)
        self._input_norm = self._norm_of(take, "midlayer.input_layernorm")
        self._hidden_norm = self._norm_of(take, "midlayer.hidden_norm")
        self._norm_first = bool(self.config.get("norm_before_residual"))
        self._norm_output = self._sets("norm_output")
        self._norm = self._norm_of(take, "norm")
        head = take("lm_head.weight", None, hidden)
        self._read_out = project(head, None)
        offsets = checkpoint.weights.pop("d2t", None)
        checkpoint.weights.pop("t2d", None)  # it says what d2t does
        ids = None if offsets is None else _draft_ids(folder, offsets, len(head))
        self._vocabulary = DraftVocabulary(folder, len(head), ids, target)

    def _sets(self, name: str) -> bool:
        eagle: dict[str, Any] = self.config.get("eagle_config") or {}
        return bool(eagle.get(name, self.config.get(name)))

    def _norm_of(self, take: Take, name: str, each: int = 1) -> RmsNorm:
        """Return a norm of `each` hidden states together."""
        return RmsNorm(take(f"{name}.weight", each * self.shape.hidden), self.shape.eps)

    def combine(self, states: Tensor) -> Tensor:
        """See FeatureHead."""
        if self._states_norm is not None:
            states = self._states_norm(states)
        if self._norm_of_each:
            each = zip(self._norm_of_each, states.chunk(len(self._norm_of_each), -1), strict=True)
            states = torch.cat([norm(state) for norm, state in each], -1)
        return self._fc(states)

    def _compute(self, features: Tensor, layout: Layout, pool: KvPool) -> tuple[Tensor, Tensor]:
        embedded = self._input_norm(F.embedding(layout.tokens, self.embedding))
        normed = self._hidden_norm(features)
        residual = normed if self._norm_first else features
        read = torch.cat((embedded, normed), -1)
        x = wanted(self.attend(read, residual, layout, pool), layout)
        x = self.block.feed_forward(x, self._layer)
        normed = self._norm(x)
        return normed if self._norm_output else x, self._read_out(normed)


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
    return tuple(sorted(set(_named_layers(config) or (2, layers // 2, layers - 3))))


def _named_layers(config: dict[str, Any]) -> list[int]:
    eagle: dict[str, Any] = config.get("eagle_config") or {}
    named: list[int] = eagle.get(LAYER_IDS) or config.get(LAYER_IDS) or []
    return named
