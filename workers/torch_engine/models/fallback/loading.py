"""Loading of models that run through transformers, and the choice of how they are read."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

from workers.bundle import BundleError
from workers.torch_engine.models.fallback.transformers_model import (
    CachedModel,
    RereadModel,
    TransformersModel,
)
from workers.torch_engine.models.kv_pool import KvShape
from workers.torch_engine.models.layout import Span

log = logging.getLogger(__name__)

LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Rotary variants whose angles depend on the length of the forward."""

IDLE = "max_window_layers"
"""Has no effect unless a window is set too. Any other setting with "window" in its name is one."""

MISFITS = {
    "missing_keys": "the weights lack",
    "mismatched_keys": "config.json's model has another shape of",
    "unexpected_keys": "config.json's model does not have",
}
"""Reports of transformers, which fills missing tensors with random numbers and ignores others."""


def load_transformers(folder: Path, dtype: torch.dtype, device: torch.device) -> TransformersModel:
    """Load a part through transformers. Raises BundleError on failure.

    A trial with a small batch and a tree decides whether our pool gives what reading everything
    anew gives. Models for which it does not are read anew at every step.
    """
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # a model's own code or a missing library may raise anything
        raise BundleError(f"transformers cannot load {folder}: {error}") from error
    causal, report = loaded
    _refuse_misfit(folder, report)
    causal = causal.to(device).eval()
    config = causal.config.get_text_config()
    if config.is_encoder_decoder or not getattr(config, "is_causal", True):
        raise BundleError(f"{folder}/config.json: not a causal language model")
    reread = RereadModel(causal, dtype, device)
    with torch.inference_mode():
        shape = _cache_shape(causal, device)
        if shape is None:
            return reread
        cached = CachedModel(causal, dtype, device, shape)
        try:
            return cached if _agree(cached, reread) else reread
        except Exception as error:  # a forward without such a mask may fail in any way
            log.warning("%s: our KV pool does not fit its forward: %r", folder, error)
            return reread


def _refuse_misfit(folder: Path, report: Mapping[str, Collection[Any]]) -> None:
    for kind, problem in MISFITS.items():
        if report[kind]:
            names = sorted(str(key) for key in report[kind])
            raise BundleError(f"{folder}: {problem} {', '.join(names[:4])} ({len(names)} tensors)")


def _cache_shape(causal: Any, device: torch.device) -> KvShape | None:
    """Return the shape of a model's cache, None if it needs more than all keys and values."""
    if not _sees_all_alike(causal.config.get_text_config().to_dict()):
        return None
    cache = DynamicCache(config=causal.config)
    try:
        causal(torch.zeros(1, 2, dtype=torch.long, device=device), past_key_values=cache)
    except Exception:  # models without such a cache raise various errors
        return None
    layers: list[Any] = cache.layers
    if any(type(layer) is not DynamicLayer for layer in layers):
        return None
    shapes = {tuple(kept.shape) for layer in layers for kept in (layer.keys, layer.values)}
    if len(shapes) != 1:
        return None
    ((batch, kv_heads, tokens, head_dim),) = shapes
    if (batch, tokens) != (1, 2):
        return None
    return KvShape(len(layers), kv_heads, head_dim)


def _sees_all_alike(settings: dict[str, Any]) -> bool:
    """Return whether every token sees all before it at constant angles.

    A trial with a small batch cannot show this.
    """
    if any(value and "window" in name for name, value in settings.items() if name != IDLE):
        return False
    rope = settings.get("rope_parameters") or {}
    ropes = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    return all(each.get("rope_type") not in LENGTH_DEPENDENT for each in ropes)


def _agree(cached: CachedModel, reread: RereadModel) -> bool:
    """Return whether both models agree on a tree and a chain, their commit and one more step."""
    bound = 1e-3 if cached.dtype == torch.float32 else 5e-2
    seen = [_trial(model) for model in (cached, reread)]
    for ours, theirs in zip(*seen, strict=True):
        spread = (theirs - theirs.mean(-1, keepdim=True)).abs().max()
        if not float((ours - theirs).abs().max()) <= bound * float(spread):
            return False
    return True


def _trial(model: TransformersModel) -> list[Tensor]:
    pool = model.make_pool(2, 16)
    first, second = pool.acquire(), pool.acquire()

    def run(*spans: Span) -> Tensor:
        for span in spans:
            span.tokens = [token % model.vocab for token in span.tokens]
        return model.forward(model.lay_out(spans, pool), pool)[0]

    logits = [run(Span(first, [11, 3, 7, 5, 2]), Span(second, [13, 17]))]
    first.length, second.length = 5, 2
    tree = Span(first, [19, 4, 8, 23, 29, 6], parents=[-1, -1, 0, 1, 1, 4])
    logits.append(run(tree, Span(second, [31, 9, 10])))
    pool.commit(first, [1, 4])
    pool.commit(second, [0, 1, 2])
    return [*logits, run(Span(first, [37]), Span(second, [12, 41]))]
