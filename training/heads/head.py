"""The base of trained heads: the chain that they draft, and how they are stored."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from training.heads.stored import StoredHead
from training.heads.teacher import Teacher
from workers.torch_engine.models.tensors import refuse_misfit


class ScaledLinear(nn.Linear):
    """A matrix over input features of different sizes.

    `scale` [inputs] brings them to one size, so that one learning rate suits all columns. `folded`
    returns the matrix for unscaled features.
    """

    scale: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.register_buffer("scale", torch.ones(inputs), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x * self.scale, self.weight)

    def folded(self) -> Tensor:
        return self.weight * self.scale


class Head(nn.Module, ABC):
    """A head for one target. Position j (0-based) of slot i drafts the token x_{i+2+j}, since the
    target itself gives x_{i+1}.

    captures: layer indices of the target's hidden states that it reads in addition to the last one.
    vocabulary: int64 [k], ascending: the token ids of `logits`; None for all. regression: weight in
    the loss of the distance between outputs and the target's features.
    """

    kind: ClassVar[str]
    regression: ClassVar[float] = 0.0
    captures: tuple[int, ...] = ()
    embedding: Tensor
    vocabulary: Tensor | None

    def __init__(self, teacher: Teacher, vocabulary: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("embedding", teacher.embedding, persistent=False)
        # In checkpoints: a resumed run must not assign other tokens to its LM head's rows.
        self.register_buffer("vocabulary", vocabulary)
        self.register_load_state_dict_pre_hook(_refuse_other_tokens)  # type: ignore[no-untyped-call]

    @abstractmethod
    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        """Return outputs [b, t, hidden] of positions drafted from every slot, one per embedding.

        embeddings: of x_{i+1+j} at slot i, each [b, t, hidden]. states: [b, t, captures + 1,
        hidden] of the target, the state after its final norm last. documents: int [b, t].
        """

    def calibrate(self, states: Tensor) -> None:
        """Adapt scales to some of the target's states, as `roll` takes them, before training."""

    @abstractmethod
    def logits(self, output: Tensor) -> Tensor:
        """Return the logits [n, k] over `vocabulary` of an output [n, hidden]."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the config.json that vLLM reads."""

    def drafts(self, labels: Tensor, states: Tensor, documents: Tensor, count: int) -> list[Tensor]:
        """Call `roll` over the text itself. labels: x_{i+1} at slot i, int64 [b, t]."""
        shifted = [F.pad(labels[:, j:], (0, j)) for j in range(count)]
        return self.roll([F.embedding(x, self.embedding) for x in shifted], states, documents)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights under vLLM's names, in bfloat16."""
        weights: dict[str, Tensor] = dict(self.named_parameters())
        for name, module in self.named_modules():
            if isinstance(module, ScaledLinear):
                weights[f"{name}.weight"] = module.folded()
        return {
            name: value.detach().to("cpu", torch.bfloat16).contiguous()
            for name, value in weights.items()
        }

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.config(), indent=2, sort_keys=True)
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        save_file(self.tensors(), str(folder / "model.safetensors"), metadata={"format": "pt"})

    def load(self, stored: StoredHead) -> None:
        """Take the weights of a head that `save` wrote or vLLM loads.

        Raises BundleError naming a tensor that is missing, of another shape, or not trained here.
        """
        weights = {
            name: weight.float()
            for name, weight in stored.weights.items()
            if weight.is_floating_point()
        }
        parameters = dict(self.named_parameters())
        found = {name: weight.shape for name, weight in weights.items()}
        expected = {name: tuple(weight.shape) for name, weight in parameters.items()}
        refuse_misfit(stored.folder, found, expected, {})
        for name, module in self.named_modules():
            if isinstance(module, ScaledLinear):
                weights[f"{name}.weight"] /= module.scale.cpu()
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])


def _refuse_other_tokens(head: nn.Module, state: dict[str, Any], *_: Any) -> None:
    assert isinstance(head, Head)
    own, other = head.vocabulary, state.get("vocabulary")
    if own is not None and other is not None and not torch.equal(own.cpu(), other.cpu()):
        raise ValueError(
            "work: its checkpoint drafts other tokens than the most frequent ones of this "
            "text: name another folder, or the text that the run began with"
        )


def size(x: Tensor) -> Tensor:
    """Return the root mean square, a scalar."""
    return x.float().square().mean().sqrt()


def llama_config(teacher: Teacher, **changes: Any) -> dict[str, Any]:
    """Return the config.json of a head of one block in the target's shape, with `changes`."""
    written: dict[str, Any] = teacher.config.to_diff_dict()
    return {**written, "num_hidden_layers": 1, **changes}
