"""Load a part's tensors by their names in the checkpoint."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.models.block_weights import (
    PACKED,
    is_packed,
)
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.tensors import model_tensors, refuse_misfit
from workers.weight_files import stored_tensors, weight_files

Take = Callable[[str], Tensor]
"""Function from a checkpoint's tensor name to the tensor, on the device and in the dtype, or in
groups (see block_weights)."""

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Matrices that a layer joins: all of them are in groups, or none."""


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Load every tensor of a model, from one file or several; raises BundleError as
    `stored_tensors` does."""
    stored_tensors(folder)
    weights: dict[str, Tensor] = {}
    for file in weight_files(folder):
        try:
            weights.update(load_file(file))
        except SafetensorError as error:
            raise BundleError(f"{file}: {error}: download it again") from error
    return weights


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

    Raises BundleError where the folder has no 4-bit weights, and as `load_model_weights` does.
    """
    if not (folder / PACKED).is_file():
        raise BundleError(
            f"engine.dtype: q4 needs the 4-bit weights of a GGUF file, and {folder} was not "
            "imported from one: use float32 or bfloat16"
        )
    weights, packed = load_model_weights(folder, shape), load_file(folder / PACKED)
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
