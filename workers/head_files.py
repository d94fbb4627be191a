"""The tensors of a part's files, and checks of a head before an engine drafts with it."""

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.weight_files import stored_tensors, weight_files

NOT_READ = ("t2d",)
"""Tensors that no engine reads."""


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Load every tensor of a part, from one file or several; raises BundleError as
    `stored_tensors` does."""
    stored_tensors(folder)
    return {name: w for file in weight_files(folder) for name, w in load_file(file).items()}


def refuse_not_finite(folder: Path) -> None:
    """Raise BundleError for weights that hold NaN or infinity, or are not whole."""
    for name, weight in load_weights(folder).items():
        if weight.is_floating_point() and not bool(weight.isfinite().all()):
            raise BundleError(
                f"{folder}: {name} holds NaN or infinite values: train this head again"
            )


def refuse_other_shapes(folder: Path, own: Path) -> None:
    """Raise BundleError for a head whose tensors have other names or shapes than those of `own`."""
    found, expected = _shapes(folder), _shapes(own)
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise BundleError(
                f"{folder}: {name} has shape {found.get(name)}, in {own} it has "
                f"{expected.get(name)}: only a head of the same shapes can take its place"
            )


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return {n: stored.shape for n, stored in stored_tensors(folder).items() if n not in NOT_READ}
