"""Check and load a part's tensors by their names in the checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.head_files import load_weights
from workers.torch_engine.models.block_weights import is_packed
from workers.torch_engine.models.shape import LlamaShape
from workers.weight_files import PACKED, stored_tensors, weight_files

Dims = tuple[int | None, ...]
"""A tensor's shape; None stands for any length."""

_DERIVED = ".rotary_emb.inv_freq"
"""Older checkpoints store what config.json determines."""
EMBEDDING = "model.embed_tokens.weight"
_NAMED = 4
"""Most tensors that a message names."""


def model_tensors(shape: LlamaShape) -> dict[str, Dims]:
    """Name every tensor of a model of this shape, with the names of its checkpoint."""
    tensors: dict[str, Dims] = {
        EMBEDDING: (shape.vocab, shape.hidden),
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
    describes, and without it the responses would be wrong.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        raise BundleError(f"{folder}: the weights lack {_listed(missing)}, which config.json needs")
    known = {**optional, **expected}
    for name, dims in known.items():
        shape = tuple(found.get(name, dims))
        if len(shape) != len(dims) or any(
            d not in (None, n) for d, n in zip(dims, shape, strict=True)
        ):
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


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    rest = len(names) - _NAMED
    return f"{shown} and {rest} more tensors" if rest > 0 else shown


Take = Callable[[str], Tensor]
"""Function from a checkpoint's tensor name to the tensor, on the device and in the dtype, or in
groups (see block_weights)."""

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Matrices that a layer joins: all of them are in groups, or none."""


def load_model_weights(folder: Path, shape: LlamaShape) -> dict[str, Tensor]:
    """Load the weights of a model of this shape; raises BundleError where a tensor is missing, of
    another shape, quantised, or not part of such a model."""
    stored = stored_tensors(folder)
    found = {name: tensor.shape for name, tensor in stored.items()}
    tied_copy = {"lm_head.weight": (shape.vocab, shape.hidden)}
    refuse_misfit(folder, found, model_tensors(shape), tied_copy)
    for name in model_tensors(shape):
        if not stored[name].is_plain:
            raise BundleError(
                f"{folder}: {name} is quantised as {stored[name].dtype} and config.json has no "
                "quantization_config: download the model as it was published"
            )
    return load_weights(folder)


def load_packed_weights(folder: Path, shape: LlamaShape) -> dict[str, Tensor]:
    """Load the weights of a model of this shape, those of 4 bits in groups.

    Raises BundleError where the folder has none, and as `load_model_weights` does.
    """
    if not (folder / PACKED).is_file():
        raise BundleError(
            f"engine.dtype: q4 needs the weights of a quantised GGUF file, and {folder} was not "
            "imported from one: use float32 or bfloat16"
        )
    weights, packed = load_model_weights(folder, shape), load_file(folder / PACKED)
    packed.pop(EMBEDDING, None)  # its rows are looked up
    for joined in FUSED:
        for name in [name for name in packed if joined[0] in name]:
            names = [name.replace(joined[0], other) for other in joined]
            if not packed.keys() >= {*names}:
                for each in names:
                    packed.pop(each, None)
    return weights | packed


def load_tensor(folder: Path, name: str) -> Tensor:
    """Load one tensor of a model. Raises BundleError where it is missing."""
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as opened:
            if name in opened.keys():  # noqa: SIM118
                tensor: Tensor = opened.get_tensor(name)
                return tensor
    raise BundleError(f"the weights in {folder} have no tensor {name!r}")


def taker(weights: dict[str, Tensor], dtype: torch.dtype, device: torch.device) -> Take:
    """Return a function that takes tensors out of `weights`, and BundleError for missing ones."""

    def take(name: str) -> Tensor:
        if name not in weights:
            raise BundleError(f"the weights have no tensor {name!r}")
        weight = weights[name]
        return weight if is_packed(weight) else weight.to(device=device, dtype=dtype)

    return take
