"""Medusa, EAGLE and EAGLE-3 written out: whole texts, no cache, one path of a tree at a time. What
the engine's drafters are held against."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass
class Head:
    """A head's folder, and the target that it reads."""

    folder: Path
    target: PreTrainedModel
    _known: dict[tuple[int, ...], tuple[Tensor, ...]] = field(default_factory=dict)
    steps: dict[tuple[int, ...], tuple[Tensor, Tensor]] = field(default_factory=dict)

    @cached_property
    def config(self) -> dict[str, Any]:
        return json.loads((self.folder / "config.json").read_text())

    @cached_property
    def listed(self) -> list[int]:
        """The only tokens that it drafts, or none where it drafts any."""
        file = self.folder / "draft_vocabulary.json"
        return json.loads(file.read_text())["token_ids"] if file.is_file() else []

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return load_file(self.folder / "model.safetensors")

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.tensors[f"{name}.weight"]
        return F.rms_norm(x, weight.shape, weight, self.config["rms_norm_eps"])

    def attention(self, x: Tensor, name: str) -> Tensor:
        """Causal attention of x [n, width] at positions 0 .. n-1."""
        dim = self.config["head_dim"]
        query, key, value = (
            self.linear(x, f"{name}.{part}_proj").view(len(x), -1, dim).transpose(0, 1)
            for part in "qkv"
        )
        query, key = turned(query, self.config), turned(key, self.config)
        groups = len(query) // len(key)
        key, value = key.repeat_interleave(groups, 0), value.repeat_interleave(groups, 0)
        scores = query @ key.transpose(1, 2) / dim**0.5
        unseen = torch.ones(len(x), len(x)).triu(1).bool()
        seen = scores.masked_fill(unseen, -torch.inf).softmax(-1) @ value
        return self.linear(seen.transpose(0, 1).reshape(len(x), -1), f"{name}.o_proj")

    def after_attention(self, x: Tensor, name: str) -> Tensor:
        """The residual stream after the block's MLP."""
        normed = self.norm(x, f"{name}.post_attention_layernorm")
        gate = F.silu(self.linear(normed, f"{name}.mlp.gate_proj"))
        up = self.linear(normed, f"{name}.mlp.up_proj")
        return x + self.linear(gate * up, f"{name}.mlp.down_proj")

    def embed(self, tokens: Tensor) -> Tensor:
        own = self.tensors.get("embed_tokens.weight")
        shared = self.target.get_input_embeddings().weight
        return F.embedding(tokens, shared if own is None else own)

    def states(self, tokens: Sequence[int]) -> tuple[Tensor, ...]:
        """The target's hidden states [n, hidden] before each layer, and the final one. Leaves and
        trees after the same text share them."""
        text = tuple(tokens)
        if text not in self._known:
            output = self.target(torch.tensor([text]), output_hidden_states=True)
            self._known[text] = tuple(states[0] for states in output.hidden_states)
        return self._known[text]


def turned(x: Tensor, config: dict[str, Any]) -> Tensor:
    """Rotary embedding of x [heads, n, dim], halves of a head as pairs."""
    dim = x.shape[-1]
    base = config["rope_parameters"]["rope_theta"]
    angles = torch.outer(torch.arange(x.shape[1]).float(), base ** -(torch.arange(0, dim, 2) / dim))
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def eagle(head: Head, tokens: list[int], path: list[int]) -> Tensor:
    """Logits [len(path) + 1, vocab] after the tokens and after each token of the path."""

    def step(read: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        x = head.linear(torch.cat((head.embed(read), features), -1), "fc")
        x = head.after_attention(x + head.attention(x, "layers.0.self_attn"), "layers.0")
        own = "lm_head.weight" in head.tensors
        logits = head.linear(x, "lm_head") if own else head.target.get_output_embeddings()(x)
        if head.listed:
            unlisted = [token for token in range(logits.shape[1]) if token not in head.listed]
            logits[:, unlisted] = -torch.inf
        return x, logits

    return rolled_out(head, step, tokens, head.states(tokens)[-1][:-1], path)


def eagle3(head: Head, tokens: list[int], path: list[int]) -> Tensor:
    """As `eagle`."""

    def step(read: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        normed = head.norm(features, "midlayer.hidden_norm")
        both = torch.cat((head.norm(head.embed(read), "midlayer.input_layernorm"), normed), -1)
        stream = normed if head.config.get("norm_before_residual") else features
        x = stream + head.attention(both, "midlayer.self_attn")
        x = head.after_attention(x, "midlayer")
        normed = head.norm(x, "norm")
        logits = head.linear(normed, "lm_head")
        rows = torch.arange(logits.shape[1])
        full = torch.full((len(x), head.config["vocab_size"]), -torch.inf)
        full[:, rows + head.tensors.get("d2t", 0)] = logits
        return normed if head.config.get("norm_output") else x, full

    states = head.states(tokens)
    layers = len(states) - 1
    wanted = [states[layer][:-1] for layer in sorted({2, layers // 2, layers - 3})]
    if head.config.get("fc_norm"):
        wanted = [head.norm(state, f"fc_norm.{i}") for i, state in enumerate(wanted)]
    features = torch.cat(wanted, -1)
    if head.config.get("norm_before_fc"):
        features = head.norm(features, "input_norm")
    return rolled_out(head, step, tokens, head.linear(features, "fc"), path)


def medusa(head: Head, tokens: list[int], path: list[int]) -> Tensor:
    """As `eagle`; only the length of the path counts."""
    rows = []
    for number in range(len(path) + 1):
        y = head.states(tokens)[-1][-2]
        for layer in range(head.config["num_hidden_layers"]):
            y = y + F.silu(head.linear(y, f"blocks.{number}.layers.{layer}"))
        shared = head.config["original_lm_head"]
        logits = head.linear(y, "lm_head" if shared else f"lm_heads.{number}")
        row = torch.full((head.config["vocab_size"],), -torch.inf)
        row[head.tensors.get("token_map", torch.arange(len(logits)))] = logits
        rows.append(row)
    return torch.stack(rows)


def rolled_out(
    head: Head, step: Step, tokens: list[int], features: Tensor, path: list[int]
) -> Tensor:
    """Read the pairs (token i + 1, feature i), then each token of the path with the feature that
    the step before predicted. Paths of a tree share their beginnings."""
    rows = list[Tensor]()
    for at in range(len(path) + 1):
        drafted = path[:at]
        begun = *tokens, -1, *drafted
        if begun not in head.steps:
            predicted, logits = step(torch.tensor([*tokens[1:], *drafted]), features)
            head.steps[begun] = predicted[-1:], logits[-1]
        predicted, row = head.steps[begun]
        rows.append(row)
        features = torch.cat((features, predicted))
    return torch.stack(rows)
