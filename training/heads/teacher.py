"""The frozen target that a head learns from: its hidden states, embeddings and LM head."""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from training.model import Llama, hidden_keys
from training.precision import arithmetic, autocast

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Targets whose logits are their LM head over the state after the final norm, and no more."""

States = Callable[[Tensor, Collection[int], Tensor], list[Tensor]]
"""Token ids, layers, documents -> what enters these layers, and the state after the last norm."""


class Teacher:
    """A target: `model` holds its weights, `run` computes its states.

    config: a Llama in the target's widths, heads and rotary embeddings, which heads are made in.
    layers: how many the target has. embedding, lm_head: [vocab, hidden], as the device computes.
    norm: the weight of its final norm, [hidden].
    """

    def __init__(
        self,
        model: nn.Module,
        run: States,
        config: LlamaConfig,
        embedding: Tensor,
        lm_head: Tensor,
        norm: Tensor,
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        self.config, self.layers = config, config.num_hidden_layers
        self.embedding = embedding.detach().to(arithmetic(embedding.device))
        self.lm_head = lm_head.detach().to(arithmetic(lm_head.device))
        self.norm = norm.detach()
        self.device = embedding.device
        self._run = run

    @staticmethod
    def of(model: Llama, compiled: bool = False) -> "Teacher":
        """Wrap a target in our training layout; with `compiled`, compile its layers, which all
        share one graph."""
        if compiled:
            for layer in model.layers:
                layer.compile(dynamic=False)
        words = model.embed_tokens.weight
        return Teacher(
            model, model.states, model.geometry.config(), words, words, model.norm.weight
        )

    @staticmethod
    def load(folder: Path, device: str = "cpu", compiled: bool = False) -> "Teacher":
        """A target of one of FAMILIES in Hugging Face layout. Raises ValueError naming the field
        of its config.json that makes it none."""
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no model (no config.json)")
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        refuse_others(config, folder)
        if _trained_here(config, folder):
            return Teacher.of(Llama.load(folder).to(device), compiled)
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=arithmetic(torch.device(device))
        )
        model = model.to(torch.device(device))

        def run(ids: Tensor, captures: Collection[int], documents: Tensor) -> list[Tensor]:
            seen = ~hidden_keys(documents, 0, ids.shape[1], 1)
            output = model.model(
                ids, attention_mask=seen[:, None], output_hidden_states=True, use_cache=False
            )
            return [*(output.hidden_states[i] for i in captures), output.last_hidden_state]

        words, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        return Teacher(model, run, _head_config(config), words, head, model.model.norm.weight)

    @torch.no_grad()
    def states(self, ids: Tensor, documents: Tensor, captures: Sequence[int]) -> Tensor:
        """What enters the layers of `captures`, and the state after the final norm: bfloat16
        [b, t, captures + 1, hidden]. ids int64 [b, t]; documents int64 [b, t], of which a token
        sees its own alone."""
        with autocast(self.device):
            kept = self._run(ids, tuple(captures), documents)
        return torch.stack([s.to(torch.bfloat16) for s in kept], dim=2)

    @property
    def weights(self) -> dict[str, Tensor]:
        """The target's tensors by name."""
        return self.model.state_dict()


def refuse_others(config: Any, folder: Path) -> None:
    """Raises ValueError for a target that heads cannot be trained for, naming the field."""
    name = f"{folder}/config.json"
    if config.model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"{name}: model_type {config.model_type!r}: heads are trained for {known}")
    if getattr(config, "quantization_config", None):
        raise ValueError(f"{name}: quantization_config: heads learn from unquantised targets")
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    if set(kinds) != {"full_attention"} or _window(config):
        raise ValueError(f"{name}: sliding_window: heads are trained for full attention")
    if config.rope_parameters.get("rope_type") == "dynamic":
        raise ValueError(f"{name}: rope_type 'dynamic': its angles depend on the length")


def _window(config: Any) -> bool:
    return config.model_type == "mistral" and config.sliding_window is not None


def _trained_here(config: Any, folder: Path) -> bool:
    """Whether our own training forward, the faster one, computes the target."""
    written = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return bool(
        config.model_type == "llama"
        and "rope_parameters" in written
        and config.tie_word_embeddings
        and config.rope_parameters.get("rope_type") == "default"
        and config.head_dim == config.hidden_size // config.num_attention_heads
        and not config.attention_bias
        and not config.mlp_bias
        and config.hidden_act == "silu"
        and (folder / "model.safetensors").is_file()
    )


def _head_config(config: Any) -> LlamaConfig:
    """A Llama of the target's shape."""
    head_dim = getattr(config, "head_dim", None)
    return LlamaConfig(
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=head_dim or config.hidden_size // config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        rope_parameters=dict(config.rope_parameters),
        rms_norm_eps=config.rms_norm_eps,
        tie_word_embeddings=config.tie_word_embeddings,
        pad_token_id=config.pad_token_id,
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        dtype="bfloat16",
    )
