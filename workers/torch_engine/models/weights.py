"""Load a part's tensors by their names in the checkpoint."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.tensors import model_tensors, refuse_misfit
from workers.weight_files import stored_tensors, weight_files

Take = Callable[[str], Tensor]
"""Function from a checkpoint's tensor name to the tensor, on the device and in the dtype."""


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
        return weights[name].to(device=device, dtype=dtype)

    return take
