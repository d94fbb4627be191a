"""Read a head from which training continues, and check that it fits the target."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig

from training.heads.teacher import Teacher
from workers.bundle import BundleError, read_json
from workers.torch_engine.models.heads.checkpoint import listed_tokens
from workers.torch_engine.models.heads.eagle3 import NORMS, NOT_COMPUTED, captured_layers
from workers.torch_engine.models.weights import load_weights

SIZES = ("hidden_size", "vocab_size")
BLOCK = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("rms_norm_eps", "rope_parameters"),
)
"""Fields that a head of one block has in common with its target."""
NOT_TRAINED = (*NOT_COMPUTED, *NORMS, "norm_before_residual")


class StoredHead:
    """The config and the tensors of a head in the layout that vLLM loads.

    vocabulary: int64 [k], the target's token of each of the head's logits; None for all tokens.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        """Read a folder. Raises BundleError if it holds no head."""
        self.folder, self.kind = folder, kind
        self.config: dict[str, Any] = read_json(folder / "config.json")
        self.weights = load_weights(folder)
        self.vocabulary = self._vocabulary()
        if kind == "medusa" and not self.positions:
            raise BundleError(f"{folder} holds no Medusa heads (no blocks.0.layers.0.weight)")

    def _vocabulary(self) -> Tensor | None:
        if self.kind == "eagle":
            return listed_tokens(self.folder)
        if self.kind == "medusa":
            return self.weights.get("token_map")
        offsets = self.weights.get("d2t")
        return None if offsets is None else torch.arange(len(offsets)) + offsets

    @property
    def positions(self) -> int:
        """Return the number of Medusa heads."""
        return sum(name.endswith(".layers.0.weight") for name in self.weights)

    @property
    def depth(self) -> int:
        """Return the number of layers of each Medusa head."""
        return sum(n.startswith("blocks.0.") and n.endswith(".weight") for n in self.weights)

    def captures(self, layers: int) -> tuple[int, ...]:
        """Return the layers whose inputs an EAGLE-3 head reads, ascending."""
        return captured_layers(self.config, layers)

    def refuse_other_target(self, teacher: Teacher) -> None:
        """Raise ValueError for a head of another target, or one that training does not compute.

        The message names the field of config.json.
        """
        file, target = self.folder / "config.json", teacher.config
        for name in SIZES:
            self._compare(name, self.config.get(name), getattr(target, name))
        words, count = self.vocabulary, len(teacher.lm_head)
        if words is not None and not 0 <= int(words.min()) <= int(words.max()) < count:
            raise ValueError(
                f"start: {self.folder}: its vocabulary maps to tokens {int(words.min())} .. "
                f"{int(words.max())}, the target has {count}"
            )
        if self.kind == "medusa":
            return
        try:
            own = LlamaConfig(**self.config)
        except Exception as error:  # its validators raise classes of several libraries
            raise ValueError(f"start: {file}: {error}") from error
        for name in BLOCK:
            self._compare(name, getattr(own, name), getattr(target, name))
        eagle: dict[str, Any] = self.config.get("eagle_config") or {}
        for name in NOT_TRAINED:
            if eagle.get(name, self.config.get(name)):
                raise ValueError(f"start: {file}: {name} is set, which is not trained here")
        if self.kind == "eagle3" and max(self.captures(teacher.layers)) >= teacher.layers:
            raise ValueError(
                f"start: {file}: the head reads layers {self.captures(teacher.layers)}, the "
                f"target has {teacher.layers}"
            )

    def _compare(self, name: str, own: Any, target: Any) -> None:
        if own != target:
            raise ValueError(
                f"start: {self.folder / 'config.json'}: {name} is {own}, the target's is "
                f"{target}: a head goes on only with the target that it was trained for"
            )
