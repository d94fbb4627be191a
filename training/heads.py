"""Heads of each method: the chain that they draft in training, and how they are stored."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import LlamaConfig

from training.rolling import Roll, RolledBlock, initialise
from training.teacher import Teacher
from workers.bundle import BundleError, read_json
from workers.head_files import load_weights
from workers.torch_engine.models.heads.checkpoint import LISTED, listed_tokens
from workers.torch_engine.models.heads.eagle import (
    NORMS,
    NOT_COMPUTED,
    capture_layers,
    captured_layers,
)
from workers.torch_engine.models.weights import refuse_misfit

SIZES = ("hidden_size", "vocab_size")
BLOCK = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("rms_norm_eps", "rope_parameters"),
)
"""Fields that a head of one block has in common with its target."""
NOT_TRAINED = (*NOT_COMPUTED, *NORMS, "norm_before_residual")


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


class StoredHead:
    """The config and the tensors of a head in the layout that vLLM loads.

    vocabulary: int64 [k], the target's token of each of the head's logits; None for all tokens.
    positions: the number of Medusa heads, 0 for another kind.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        """Read a folder. Raises BundleError if it holds no head."""
        self.folder, self.kind = folder, kind
        self.config: dict[str, Any] = read_json(folder / "config.json")
        self.weights = load_weights(folder)
        offsets = self.weights.get("d2t")
        self.vocabulary = None if offsets is None else torch.arange(len(offsets)) + offsets
        if kind != "eagle3":
            listed = kind == "eagle"
            self.vocabulary = listed_tokens(folder) if listed else self.weights.get("token_map")
        self.positions = sum(name.endswith(".layers.0.weight") for name in self.weights)
        if kind == "medusa" and not self.positions:
            raise BundleError(f"{folder} holds no Medusa heads (no blocks.0.layers.0.weight)")

    def refuse_other_target(self, teacher: Teacher) -> None:
        """Raise ValueError for a head of another target, or one that training does not compute.

        The message names the field of config.json.
        """
        file, target = self.folder / "config.json", teacher.config
        fields = {name: self.config.get(name) for name in SIZES}
        if self.kind != "medusa":
            try:
                own = LlamaConfig(**self.config)
            except Exception as error:  # its validators raise classes of several libraries
                raise ValueError(f"start: {file}: {error}") from error
            fields |= {name: getattr(own, name) for name in BLOCK}
        for name, value in fields.items():
            if value != getattr(target, name):
                raise ValueError(
                    f"start: {file}: {name} is {value}, the target's is {getattr(target, name)}: "
                    "a head goes on only with the target that it was trained for"
                )
        eagle: dict[str, Any] = self.config.get("eagle_config") or {}
        for name in NOT_TRAINED:
            if eagle.get(name, self.config.get(name)):
                raise ValueError(f"start: {file}: {name} is set, which is not trained here")
        captures = captured_layers(self.config, teacher.layers)
        if self.kind == "eagle3" and max(captures) >= teacher.layers:
            raise ValueError(
                f"start: {file}: the head reads layers {captures}, the target has {teacher.layers}"
            )


class Head(nn.Module, ABC):
    """A head for one target. Position j (0-based) of slot i drafts the token x_{i+2+j}, since the
    target itself gives x_{i+1}.

    captures: layer indices of the target's hidden states that it reads in addition to the last one.
    vocabulary: int64 [k], ascending: the token ids of `logits`; None for all. regression: weight in
    the loss of the distance between outputs and the target's features. config: the config.json that
    vLLM reads.
    """

    regression: ClassVar[float] = 0.0
    captures: tuple[int, ...] = ()
    embedding: Tensor
    vocabulary: Tensor | None
    config: dict[str, Any]

    def __init__(self, teacher: Teacher, vocabulary: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("embedding", teacher.embedding, persistent=False)
        # In checkpoints: a resumed run must not assign other tokens to its LM head's rows.
        self.register_buffer("vocabulary", vocabulary)

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
        text = json.dumps(self.config, indent=2, sort_keys=True)
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
        refuse_misfit(stored.folder, found, expected)
        for name, module in self.named_modules():
            if isinstance(module, ScaledLinear):
                weights[f"{name}.weight"] /= module.scale.cpu()
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(weights[name])


class Eagle(Head):
    """The head of EAGLE-1 and EAGLE-2 (arXiv 2401.15077), vLLM's EagleLlamaForCausalLM.

    It is fc([embedding of the next token; feature]), one block without input norm, and the target's
    LM head, of which it may read only some rows (FR-Spec, arXiv 2502.14856). A feature is the
    target's hidden state after its final norm.
    """

    regression = 1.0
    lm_head: Tensor

    def __init__(self, teacher: Teacher, vocabulary: Tensor | None = None) -> None:
        super().__init__(teacher, vocabulary)
        hidden = teacher.config.hidden_size
        self.register_buffer("lm_head", _words(teacher, vocabulary), persistent=False)
        self.fc = ScaledLinear(2 * hidden, hidden)
        self.layers = nn.ModuleList([RolledBlock(teacher.config, hidden)])
        self.config = _llama_config(teacher, architectures=["EagleLlamaForCausalLM"])
        initialise(self)

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        feature, roll = states[..., -1, :], Roll(documents)
        outputs: list[Tensor] = []
        for embedding in embeddings:
            x = self.fc(torch.cat((embedding, feature.to(embedding.dtype)), dim=-1)).float()
            feature = self.layers[0](x, x, roll)
            outputs.append(feature)
        return outputs

    def calibrate(self, states: Tensor) -> None:
        scales = torch.stack((_size(self.embedding), _size(states[..., -1, :]))).reciprocal()
        self.fc.scale.copy_(scales.repeat_interleave(states.shape[-1]))

    def logits(self, output: Tensor) -> Tensor:
        return F.linear(output, self.lm_head)

    def save(self, folder: Path) -> None:
        """Write the head and the list of tokens that it drafts."""
        super().save(folder)
        file = folder / LISTED
        file.unlink(missing_ok=True)
        if self.vocabulary is not None:
            file.write_text(json.dumps({"token_ids": self.vocabulary.tolist()}) + "\n")


class Midlayer(RolledBlock):
    """The block of EAGLE-3, which attends over [norm(embedding); norm(feature)]."""

    def __init__(self, config: LlamaConfig) -> None:
        hidden, eps = config.hidden_size, config.rms_norm_eps
        super().__init__(config, 2 * hidden)
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.hidden_norm = nn.RMSNorm(hidden, eps=eps)

    def step(self, embedding: Tensor, feature: Tensor, roll: Roll) -> Tensor:
        """Return the next feature [b, t, hidden] of an embedding and a feature [b, t, hidden]."""
        normed = (self.input_layernorm(embedding.float()), self.hidden_norm(feature))
        out: Tensor = self(feature, torch.cat(normed, dim=-1), roll)
        return out


class Eagle3(Head):
    """The head of EAGLE-3 (arXiv 2503.01840), vLLM's LlamaForCausalLMEagle3.

    It reads the inputs of some layers through `fc`, feeds its block's output (before the final
    norm) back, and has its own vocabulary.
    """

    def __init__(
        self,
        teacher: Teacher,
        vocabulary: Tensor | None,
        captures: tuple[int, ...] | None = None,
    ) -> None:
        """Make a new head. `captures` replaces the layers of `capture_layers`."""
        super().__init__(teacher, vocabulary)
        hidden, words = teacher.config.hidden_size, _words(teacher, vocabulary)
        self.captures = captures or capture_layers(teacher.layers)
        self.fc = ScaledLinear(len(self.captures) * hidden, hidden)
        self.midlayer = Midlayer(teacher.config)
        self.norm = nn.RMSNorm(hidden, eps=teacher.config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, len(words), bias=False)
        self.config = _llama_config(
            teacher,
            architectures=["LlamaForCausalLMEagle3"],
            draft_vocab_size=len(words),
            tie_word_embeddings=False,
            eagle_config={
                "eagle_aux_hidden_state_layer_ids": list(self.captures),
                "use_aux_hidden_state": True,
            },
        )
        initialise(self)
        self.lm_head.weight.data.copy_(words)
        self.norm.weight.data.copy_(teacher.norm)

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        roll = Roll(documents)
        feature: Tensor = self.fc(states[..., :-1, :].flatten(-2)).float()
        outputs = []
        for embedding in embeddings:
            feature = self.midlayer.step(embedding, feature, roll)
            outputs.append(feature)
        return outputs

    def calibrate(self, states: Tensor) -> None:
        scales = torch.stack([_size(s) for s in states[..., :-1, :].unbind(-2)]).reciprocal()
        self.fc.scale.copy_(scales.repeat_interleave(states.shape[-1]))

    def logits(self, output: Tensor) -> Tensor:
        out: Tensor = self.lm_head(self.norm(output))
        return out

    def tensors(self) -> dict[str, Tensor]:
        weights = super().tensors()
        if self.vocabulary is not None:
            ids = self.vocabulary.cpu()
            weights["d2t"] = ids - torch.arange(len(ids))
        return weights


class ResidualBlock(nn.Module):
    """`layers` times x + SiLU(W x + b), initially the identity."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        for p in self.parameters():
            nn.init.zeros_(p)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.silu(layer(x))
        return x


class Medusa(Head):
    """Medusa-1 (arXiv 2401.10774) with one LM head for all positions, initially the target's.

    Names are as in vLLM's Medusa. Head j drafts position j, since the target gives the first token.
    """

    def __init__(
        self, teacher: Teacher, vocabulary: Tensor | None, positions: int = 4, layers: int = 1
    ) -> None:
        super().__init__(teacher, vocabulary)
        hidden, words = teacher.config.hidden_size, _words(teacher, vocabulary)
        self.blocks = nn.ModuleList(ResidualBlock(hidden, layers) for _ in range(positions))
        self.lm_head = nn.Linear(hidden, len(words), bias=False)
        self.lm_head.weight.data.copy_(words)
        self.config = {
            "architectures": ["MedusaModel"],
            "model_type": "medusa",
            "hidden_size": hidden,
            "vocab_size": len(teacher.lm_head),
            "truncated_vocab_size": len(words),
            "num_heads": positions,
            "num_hidden_layers": layers,
            "medusa_fc_bias": True,
            "original_lm_head": True,
            "torch_dtype": "bfloat16",
        }

    def roll(self, embeddings: Sequence[Tensor], states: Tensor, documents: Tensor) -> list[Tensor]:
        """Draft positions independently, without embeddings."""
        del documents
        feature = states[..., -1, :].float()
        blocks = list(self.blocks)[: len(embeddings)]
        return [block(feature) for block in blocks]

    def logits(self, output: Tensor) -> Tensor:
        out: Tensor = self.lm_head(output)
        return out

    def tensors(self) -> dict[str, Tensor]:
        weights = super().tensors()
        if self.vocabulary is not None:
            weights["token_map"] = self.vocabulary.cpu()
        return weights


def new_head(kind: str, teacher: Teacher, words: Tensor | None, positions: int) -> Head:
    """Make an untrained head. words: int64 [k], the tokens that it drafts; None for all."""
    if kind == "medusa":
        return Medusa(teacher, words, positions)
    return Eagle(teacher, words) if kind == "eagle" else Eagle3(teacher, words)


def continued_head(stored: StoredHead, teacher: Teacher) -> Head:
    """Make a head in the shape of a stored one, whose weights `Head.load` reads.

    Raises ValueError if it is the head of another target or one that training does not compute.
    """
    stored.refuse_other_target(teacher)
    words = stored.vocabulary
    if stored.kind == "eagle3":
        return Eagle3(teacher, words, captured_layers(stored.config, teacher.layers))
    if stored.kind == "medusa":
        first = [name for name in stored.weights if name.startswith("blocks.0.")]
        layers = sum(name.endswith(".weight") for name in first)
        return Medusa(teacher, words, stored.positions, layers)
    return Eagle(teacher, words)


def load_head(stored: StoredHead, teacher: Teacher) -> Head:
    """Load a stored head on the teacher's device. Raises as `continued_head` and `Head.load` do."""
    head = continued_head(stored, teacher)
    head.load(stored)
    return head.to(teacher.device).eval()


def _words(teacher: Teacher, vocabulary: Tensor | None) -> Tensor:
    """Return the rows of the target's LM head for the tokens that a head drafts."""
    return teacher.lm_head if vocabulary is None else teacher.lm_head[vocabulary]


def _size(x: Tensor) -> Tensor:
    """Return the root mean square, a scalar."""
    return x.float().square().mean().sqrt()


def _llama_config(teacher: Teacher, **changes: Any) -> dict[str, Any]:
    """Return the config.json of a head of one block in the target's shape, with `changes`."""
    written: dict[str, Any] = teacher.config.to_diff_dict()
    return {**written, "num_hidden_layers": 1, **changes}
