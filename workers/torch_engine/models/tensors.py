"""Name the tensors that a checkpoint must hold and check that it holds them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from workers.bundle import BundleError
from workers.torch_engine.models.shape import LlamaShape

Dims = tuple[int | None, ...]
"""A tensor's shape; None stands for any length."""

_DERIVED = ".rotary_emb.inv_freq"
"""Older checkpoints store what config.json determines."""
_NAMED = 4
"""Most tensors that a message names."""


def model_tensors(shape: LlamaShape) -> dict[str, Dims]:
    """Name every tensor of a model of this shape, with the names of its checkpoint."""
    tensors: dict[str, Dims] = {
        "model.embed_tokens.weight": (shape.vocab, shape.hidden),
        "model.norm.weight": (shape.hidden,),
    }
    if not shape.tied:
        tensors["lm_head.weight"] = (shape.vocab, shape.hidden)
    for index in range(shape.layers):
        tensors |= block_tensors(shape, f"model.layers.{index}.", shape.hidden)
    return tensors


def block_tensors(
    shape: LlamaShape, prefix: str, width: int, *, input_norm: bool = True
) -> dict[str, Dims]:
    """Name the tensors of one block whose attention reads `width` numbers a token."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    matrices: dict[str, tuple[tuple[int, int], bool]] = {
        "self_attn.o_proj": ((shape.hidden, queries), shape.out_bias),
        "mlp.down_proj": ((shape.hidden, shape.ffn), shape.mlp_bias),
    }
    if shape.fused:
        matrices["self_attn.qkv_proj"] = ((queries + 2 * keys, width), shape.qkv_bias)
        matrices["mlp.gate_up_proj"] = ((2 * shape.ffn, shape.hidden), shape.mlp_bias)
    else:
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            matrices[f"self_attn.{name}_proj"] = ((rows, width), shape.qkv_bias)
        for name in ("gate", "up"):
            matrices[f"mlp.{name}_proj"] = ((shape.ffn, shape.hidden), shape.mlp_bias)
    norms: dict[str, int] = {"post_attention_layernorm": shape.hidden}
    if input_norm:
        norms["input_layernorm"] = shape.hidden
    if shape.sandwich:
        norms |= dict.fromkeys(
            ("pre_feedforward_layernorm", "post_feedforward_layernorm"), shape.hidden
        )
    if shape.qk_norm:
        norms |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), shape.head_dim)
    tensors: dict[str, Dims] = {f"{prefix}{name}.weight": (n,) for name, n in norms.items()}
    for name, (dims, biased) in matrices.items():
        tensors[f"{prefix}{name}.weight"] = dims
        if biased:
            tensors[f"{prefix}{name}.bias"] = dims[:1]
    return tensors


def refuse_misfit(
    folder: Path,
    found: Mapping[str, Sequence[int]],
    expected: Mapping[str, Dims],
    optional: Mapping[str, Dims],
) -> None:
    """Raise BundleError for tensors that are missing, of another shape, or that nothing reads.

    found: shapes by name. A weight that nothing reads belongs to another model than config.json
    describes, and without it the answers would be wrong.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        raise BundleError(f"{folder}: the weights lack {_listed(missing)}, which config.json needs")
    known = {**optional, **expected}
    for name, dims in known.items():
        shape = tuple(found.get(name, dims))
        if len(shape) != len(dims) or any(map(_differ, dims, shape)):
            wanted = ", ".join("any" if d is None else str(d) for d in dims)
            raise BundleError(
                f"{folder}: {name} is {list(shape)}; config.json's model has [{wanted}]"
            )
    unread = [name for name in found if name not in known and not name.endswith(_DERIVED)]
    if unread:
        raise BundleError(
            f"{folder}: a model of this config.json does not have {_listed(unread)}: "
            "config.json and the weights are of different models"
        )


def _differ(wanted: int | None, length: int | None) -> bool:
    return wanted is not None and wanted != length


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    rest = len(names) - _NAMED
    return f"{shown} and {rest} more tensors" if rest > 0 else shown
