"""The frozen target that a head learns from: its hidden states, embeddings and LM head."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig
from transformers.utils import logging

from workers.cpu_arithmetic import computes_bfloat16

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Targets whose logits are their LM head over the state after the final norm, and no more."""


class Teacher:
    """A target as transformers computes it.

    config: a Llama in the target's widths, heads and rotary embeddings, which heads are made in.
    layers: how many the target has. embedding, lm_head: [vocab, hidden], as the device computes.
    norm: the weight of its final norm, [hidden].
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.config, self.layers = _head_config(model.config), model.config.num_hidden_layers
        embedding, lm_head = model.get_input_embeddings(), model.get_output_embeddings()
        self.device: torch.device = embedding.weight.device
        self.embedding: Tensor = embedding.weight.detach().to(arithmetic(self.device))
        self.lm_head: Tensor = lm_head.weight.detach().to(arithmetic(self.device))
        self.norm: Tensor = model.model.norm.weight.detach().float()

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> "Teacher":
        """Load a target of one of FAMILIES in Hugging Face layout.

        Raises ValueError naming the field of its config.json that makes it none.
        """
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds no model (no config.json)")
        refuse_others(AutoConfig.from_pretrained(folder, local_files_only=True), folder)
        # The last line that a failed training writes says why.
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=arithmetic(torch.device(device))
        )
        return cls(model.to(torch.device(device)))

    @torch.no_grad()
    def states(self, ids: Tensor, documents: Tensor, captures: Sequence[int]) -> Tensor:
        """Return what enters the layers of `captures`, and the state after the final norm.

        The result is bfloat16 [b, t, captures + 1, hidden]. ids: int64 [b, t]. documents: int64
        [b, t], of which a token sees its own alone.
        """
        seen = ~hidden_keys(documents, 0, ids.shape[1])
        with autocast(self.device):
            output = self.model.model(
                ids, attention_mask=seen[:, None], output_hidden_states=True, use_cache=False
            )
        kept = [*(output.hidden_states[i] for i in captures), output.last_hidden_state]
        return torch.stack([s.to(torch.bfloat16) for s in kept], dim=2)


def hidden_keys(documents: Tensor, start: int, end: int) -> Tensor:
    """Return which keys 0 .. end - 1 the queries start .. end - 1 do not see.

    These are later ones and those of other documents. documents: int [b, t]. The result is bool
    [b, end - start, end].
    """
    places = torch.arange(end, device=documents.device)
    later = places[None, :] > places[start:end, None]
    other = documents[:, start:end, None] != documents[:, None, :end]
    return later | other


def arithmetic(device: torch.device) -> torch.dtype:
    """Return bfloat16 if the device computes it natively, else float32.

    On CPUs without bfloat16 units oneDNN emulates it, and a target's states took ten times as long
    (44 against 463 tokens/s, SmolLM2 on two cores with AVX2).
    """
    if device.type == "cpu" and not computes_bfloat16():
        return torch.float32
    return torch.bfloat16


def autocast(device: torch.device) -> torch.autocast:
    """Compute products in `arithmetic`; weights and sums stay float32."""
    wanted = arithmetic(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=wanted == torch.bfloat16)


def refuse_others(config: Any, folder: Path) -> None:
    """Raise ValueError for a target that heads cannot be trained for, naming the field."""
    name = f"{folder}/config.json"
    if config.model_type not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"{name}: model_type {config.model_type!r}: heads are trained for {known}")
    if getattr(config, "quantization_config", None):
        raise ValueError(f"{name}: quantization_config: heads learn from unquantised targets")
    layers = getattr(config, "layer_types", None) or ["full_attention"]
    window = config.sliding_window if config.model_type == "mistral" else None
    if set(layers) != {"full_attention"} or window is not None:
        raise ValueError(f"{name}: sliding_window: heads are trained for full attention")
    if config.rope_parameters.get("rope_type") == "dynamic":
        raise ValueError(f"{name}: rope_type 'dynamic': its angles depend on the length")


def _head_config(config: Any) -> LlamaConfig:
    """Return a Llama of the target's shape."""
    same = (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
        *("intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps"),
        *("rope_parameters", "tie_word_embeddings"),
        *("pad_token_id", "bos_token_id", "eos_token_id"),
    )
    head_dim = getattr(config, "head_dim", None)
    return LlamaConfig(
        **{name: getattr(config, name) for name in same},
        head_dim=head_dim or config.hidden_size // config.num_attention_heads,
        dtype="bfloat16",
    )
