"""Check and load a part's tensors by their names in the checkpoint.

A weight of 4 bits [out, in], in groups of 32 as a GGUF file stores it, is bytes (torch.uint8)
[out, in / 32 * 24]. Its rows can therefore be split, joined and reordered like those of a plain
weight. A group is a float32 scale, a float32 offset and 16 bytes with two codes each:
weight = code * scale + offset.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from workers.bundle import BundleError
from workers.head_files import load_weights
from workers.weight_files import PACKED, stored_tensors

GROUP = 32
_NUMBERS = 8
"""Bytes of a group's scale and offset."""
Dims = tuple[int | None, ...]
"""A tensor's shape; None stands for any length."""

_DERIVED = ".rotary_emb.inv_freq"
"""Older checkpoints store what config.json determines."""
EMBEDDING = "model.embed_tokens.weight"
_NAMED = 4
"""Most tensors that a message names."""


def refuse_misfit(
    folder: Path,
    found: Mapping[str, Sequence[int]],
    expected: Mapping[str, Dims],
) -> None:
    """Raise BundleError for tensors that are missing, of another shape, or that nothing reads.

    found: shapes by name. A weight that nothing reads belongs to another model than config.json
    describes, and without it the responses would be wrong.
    """
    missing = [name for name in expected if name not in found]
    if missing:
        raise BundleError(f"{folder}: the weights lack {_listed(missing)}, which config.json needs")
    for name, dims in expected.items():
        shape = tuple(found[name])
        if len(shape) != len(dims) or any(
            d not in (None, n) for d, n in zip(dims, shape, strict=True)
        ):
            wanted = ", ".join("any" if d is None else str(d) for d in dims)
            raise BundleError(
                f"{folder}: {name} is {list(shape)}; config.json's model has [{wanted}]"
            )
    unread = [name for name in found if name not in expected and not name.endswith(_DERIVED)]
    if unread:
        raise BundleError(
            f"{folder}: a model of this config.json does not have {_listed(unread)}: "
            "config.json and the weights are of different models"
        )


def _listed(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_NAMED])
    rest = len(names) - _NAMED
    return f"{shown} and {rest} more tensors" if rest > 0 else shown


Take = Callable[..., Tensor]
"""Function from a tensor's name and shape to the tensor; see Checkpoint.take."""


class Checkpoint:
    """The tensors of a part, which readers take with the shape that config.json makes them."""

    def __init__(
        self, folder: Path, weights: dict[str, Tensor], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.folder, self.weights, self.dtype, self.device = folder, weights, dtype, device
        self._taken = set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self.weights

    def take(self, name: str, *dims: int | None) -> Tensor:
        """Return a tensor of this shape, None for any length, on the device and in the dtype; or in
        groups. Raises BundleError where it is missing or of another shape."""
        self._taken.add(name)
        weight = self.weights.get(name)
        if weight is not None and is_packed(weight):
            return weight
        found = {} if weight is None else {name: weight.shape}
        refuse_misfit(self.folder, found, {name: dims})
        return self.weights[name].to(device=self.device, dtype=self.dtype)

    def below(self, prefix: str) -> Take:
        """Return `take` for names without this prefix."""
        return lambda name, *dims: self.take(prefix + name, *dims)

    def finish(self, *unread: str) -> None:
        """Raise BundleError for tensors that nothing took, but for those that need not be read."""
        left = self.weights.keys() - self._taken - {*unread}
        refuse_misfit(self.folder, {name: self.weights[name].shape for name in left}, {})


FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Matrices that a layer joins: all of them are in groups, or none."""


def load_model_weights(folder: Path) -> dict[str, Tensor]:
    """Load the weights of a model; raises BundleError for quantised ones."""
    for name, stored in stored_tensors(folder).items():
        if not stored.is_plain:
            raise BundleError(
                f"{folder}: {name} is quantised as {stored.dtype} and config.json has no "
                "quantization_config: download the model as it was published"
            )
    return load_weights(folder)


def load_packed_weights(folder: Path) -> dict[str, Tensor]:
    """Load the weights of a model, those of 4 bits in groups.

    Raises BundleError where the folder has none, and as `load_model_weights` does.
    """
    if not (folder / PACKED).is_file():
        raise BundleError(
            f"engine.dtype: q4 needs the weights of a quantised GGUF file, and {folder} was not "
            "imported from one: use float32 or bfloat16"
        )
    weights, packed = load_model_weights(folder), load_file(folder / PACKED)
    packed.pop(EMBEDDING, None)  # its rows are looked up
    for joined in FUSED:
        for name in [name for name in packed if joined[0] in name]:
            names = [name.replace(joined[0], other) for other in joined]
            if not packed.keys() >= {*names}:
                for each in names:
                    packed.pop(each, None)
    return weights | packed


def pack(codes: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """Return the bytes of codes uint8 [out, in] with scales and offsets [out, in / 32]."""
    grouped = codes.view(len(codes), -1, GROUP)
    pairs = grouped[..., : GROUP // 2] | grouped[..., GROUP // 2 :] << 4
    numbers = torch.stack((scale, offset), -1).float().view(torch.uint8)
    return torch.cat((numbers, pairs), -1).flatten(1)


def parts(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes uint8 [out, groups, 32], and float32 scales and offsets [out, groups]."""
    groups = weight.view(len(weight), -1, _NUMBERS + GROUP // 2)
    pairs = groups[..., _NUMBERS:]
    numbers = groups[..., :_NUMBERS].contiguous().view(torch.float32)
    return torch.cat((pairs & 15, pairs >> 4), -1), numbers[..., 0], numbers[..., 1]


def is_packed(weight: Tensor) -> bool:
    """Return whether a weight is stored in groups."""
    return weight.dtype == torch.uint8


def unpacked(weight: Tensor) -> Tensor:
    """Return the bfloat16 matrix [out, in] that bytes stand for, as the importer rounds it."""
    codes, scale, offset = parts(weight)
    return (codes * scale[..., None] + offset[..., None]).flatten(1).bfloat16()
