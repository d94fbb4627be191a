"""Models that run through transformers' own forward, over our KV pool or without a cache."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from workers.bundle import BundleError
from workers.torch_engine.models.kv_pool import TREE_ROOM, KvPool, KvShape, LayerCache
from workers.torch_engine.models.layout import Layout, Span, build_layout
from workers.torch_engine.models.operators import Projection, projection

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


class TransformersModel(ABC):
    """A transformers causal LM. `manner`: how it runs, for the log. cache: what the pool holds of a
    token, in `dtype`."""

    manner: str

    def __init__(
        self, causal: Any, dtype: torch.dtype, device: torch.device, cache: KvShape
    ) -> None:
        self.causal, self.dtype, self.device = causal, dtype, device
        self._cache, self._cache_dtype = cache, dtype
        config = causal.config.get_text_config()
        self.vocab: int = config.vocab_size
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)
        self.layer_count: int = config.num_hidden_layers
        self.draft_projection: Projection = projection
        self.embedding: Tensor = causal.get_input_embeddings().weight

    def make_pool(self, rows: int, capacity: int) -> KvPool:
        """Make a pool of `rows` sequences of `capacity` tokens and their trees."""
        return KvPool(
            self._cache,
            rows=rows,
            capacity=capacity + TREE_ROOM,
            dtype=self._cache_dtype,
            device=self.device,
        )

    def lay_out(self, spans: Sequence[Span], pool: KvPool) -> Layout:
        """Return index tensors for a forward of spans, whose rows ascend, over a pool."""
        return build_layout(spans, pool, 1, self.dtype)

    @abstractmethod
    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Return logits [wanted rows, vocab] float32 and captured states; see Llama.forward."""

    def read_out(self, states: Tensor) -> Tensor:
        """Return logits [N, vocab] float32 of states [N, hidden] after the final norm."""
        logits: Tensor = self.causal.get_output_embeddings()(states)
        return logits.float()

    def lm_head_rows(self, ids: Tensor) -> Tensor:
        """See Model."""
        rows: Tensor = self.causal.get_output_embeddings().weight[ids]
        return rows


def padded(values: Tensor, layout: Layout) -> Tensor:
    """Return one value per token [N] as [S, width]."""
    padded = values if layout.pad is None else values[layout.pad]
    return padded.view(layout.sequences, layout.width)


def unpadded(values: Tensor, layout: Layout) -> Tensor:
    """Return [S, width, ...] as one row per token [N, ...]."""
    flat = values.flatten(0, 1)
    return flat if layout.unpad is None else flat[layout.unpad]


class CachedModel(TransformersModel):
    """Keys and values in our pool: batches and trees in one forward, by mask and positions."""

    manner = "with our KV pool"

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See TransformersModel."""
        caches = pool.view(layout.first, layout.sequences, layout.context)
        assert layout.mask is not None
        output = self.causal(
            input_ids=padded(layout.tokens, layout),
            position_ids=padded(layout.positions, layout),
            # Finite: padding sees nothing, and a softmax over -inf alone is NaN.
            attention_mask=layout.mask.clamp(min=torch.finfo(self.dtype).min),
            past_key_values=Cache(layers=[_PoolLayer(cache, layout) for cache in caches]),
            use_cache=True,
            output_hidden_states=bool(captures),
        )
        logits = unpadded(output.logits, layout)
        if layout.logit_rows is not None:
            logits = logits[layout.logit_rows]
        return logits.float(), {i: unpadded(output.hidden_states[i], layout) for i in captures}


class _PoolLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer's part of our pool, as a cache of transformers."""

    def __init__(self, cache: LayerCache, layout: Layout) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_initialized = True
        self._cache, self._layout = cache, layout

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing: the pool exists already."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write keys and values [S, kv_heads, width, head_dim] and return those of all slots."""
        both = torch.cat((key_states, value_states), dim=1).transpose(1, 2)
        flat = unpadded(both, self._layout)
        self._cache.slots.index_copy_(0, self._layout.slots, flat.reshape(-1, flat.shape[-1]))
        return self._cache.keys, self._cache.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the length and the offset of the keys."""
        return self._layout.context, 0

    def get_seq_length(self) -> int:
        """Return the tokens before this forward in the longest row."""
        return self._layout.context - self._layout.width

    def get_max_length(self) -> int:
        """Return -1, no bound: rows are checked when a forward is laid out."""
        return -1


class RereadModel(TransformersModel):
    """Without a cache, read every path of every sequence anew. Works for any causal model.

    Its pool holds the tokens themselves instead of keys and values.
    """

    manner = "without a KV cache: every step reads the whole text again"

    def __init__(self, causal: Any, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(causal, dtype, device, KvShape(1, 1, 1))
        self._cache_dtype = torch.int64

    def forward(
        self, layout: Layout, pool: KvPool, captures: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """See TransformersModel."""
        (cache,) = pool.view(layout.first, layout.sequences, layout.context)
        cache.slots.index_copy_(0, layout.slots, layout.tokens.repeat_interleave(2)[:, None])
        count = len(layout.tokens)
        logits: list[Tensor] = [torch.empty(0)] * count
        hidden: dict[int, list[Tensor]] = {i: [torch.empty(0)] * count for i in captures}
        for path, members in _paths(cache.keys[:, 0, :, 0], layout):
            output = self.causal(
                input_ids=path[None],
                attention_mask=torch.ones_like(path)[None],
                use_cache=False,
                output_hidden_states=bool(captures),
            )
            for token, depth in members:
                logits[token] = output.logits[0, depth]
                for index, states in hidden.items():
                    states[token] = output.hidden_states[index][0, depth]
        wanted = range(count) if layout.logit_rows is None else layout.logit_rows.tolist()
        rows = torch.stack([logits[token] for token in wanted])
        return rows.float(), {i: torch.stack(states) for i, states in hidden.items()}


def _paths(known: Tensor, layout: Layout) -> list[tuple[Tensor, list[tuple[int, int]]]]:
    """Return texts that together contain each token of a forward.

    known: tokens [S, context] of the rows. Each text comes with its tokens and with pairs (index
    in the forward, index in the text) of the tokens whose output is read from it.
    """
    assert layout.mask is not None
    visible = unpadded(layout.mask[:, 0] == 0, layout).cpu()
    rows = torch.arange(layout.sequences).repeat_interleave(layout.width)
    rows = rows if layout.unpad is None else rows[layout.unpad.cpu()]
    # a token's own slot is the last one that it sees
    own = layout.context - 1 - visible.flip(-1).int().argmax(-1)
    left = set(range(len(own)))
    paths = []
    # Last tokens first: what they see needs no text of its own.
    for leaf in reversed(range(len(own))):
        if leaf not in left:
            continue
        path = visible[leaf].nonzero()[:, 0]
        depth = {int(slot): index for index, slot in enumerate(path)}
        same_row = [t for t in left if rows[t] == rows[leaf]]
        members = [(t, depth[int(own[t])]) for t in same_row if int(own[t]) in depth]
        left -= {token for token, _ in members}
        paths.append((known[rows[leaf]][path.to(known.device)], members))
    return paths


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
