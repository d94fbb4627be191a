"""A part's tensors, by their names in the checkpoint."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError

Take = Callable[[str], Tensor]
"""A tensor of the checkpoint by name, on the right device and in the right dtype."""


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's *.safetensors, one file or several; raises BundleError where
    there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BundleError(f"no *.safetensors in {folder}")
    weights: dict[str, Tensor] = {}
    for file in files:
        weights.update(load_file(file))
    return weights


def load_tensor(folder: Path, name: str) -> Tensor:
    """One tensor of a folder's *.safetensors; raises BundleError where it is not there."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            if name in opened.keys():  # noqa: SIM118
                tensor: Tensor = opened.get_tensor(name)
                return tensor
    raise BundleError(f"the weights in {folder} have no tensor {name!r}")


def taker(weights: dict[str, Tensor], dtype: torch.dtype, device: torch.device) -> Take:
    """What takes tensors out of `weights`; it raises BundleError naming one that is not there."""

    def take(name: str) -> Tensor:
        if name not in weights:
            raise BundleError(f"the weights have no tensor {name!r}")
        return weights[name].to(device=device, dtype=dtype)

    return take
