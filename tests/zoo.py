"""Small random models of every family, saved as people download them."""

import json
from pathlib import Path
from typing import Any

import torch
from conftest_bundle import byte_tokenizer
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from workers.bundle import Bundle, load_bundle

VOCAB = 100
WINDOW = 8
TOKENS: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES: dict[str, Any] = TOKENS | {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.14,
}


def _rope(variant: str, **settings: Any) -> dict[str, Any]:
    return {"rope_type": variant, "rope_theta": 10000.0, "factor": 4.0, **settings}


LLAMA3 = _rope(
    "llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
)
TYPES = ["sliding_attention", "sliding_attention", "full_attention"]
OURS: dict[str, Any] = {
    "llama": LlamaConfig(**SIZES),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama-tied-gelu": LlamaConfig(**SIZES, hidden_act="gelu", tie_word_embeddings=True),
    "llama-llama3": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama-linear": LlamaConfig(**SIZES, rope_parameters=_rope("linear")),
    "llama-dynamic": LlamaConfig(**SIZES, rope_parameters=_rope("dynamic")),
    "llama-yarn": LlamaConfig(
        **SIZES, rope_parameters=_rope("yarn", original_max_position_embeddings=32)
    ),
    "mistral": MistralConfig(**SIZES, sliding_window=WINDOW),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-window": Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1
    ),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "phi3": Phi3Config(
        **SIZES,
        sliding_window=WINDOW,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    ),
    "gemma": GemmaConfig(**SIZES, head_dim=16),
    "gemma2": Gemma2Config(
        **SIZES,
        head_dim=16,
        sliding_window=WINDOW,
        query_pre_attn_scalar=24,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
    ),
    "gemma3": Gemma3TextConfig(
        **SIZES,
        head_dim=16,
        sliding_window=WINDOW,
        query_pre_attn_scalar=24,
        layer_types=TYPES,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    ),
}
OTHERS: dict[str, Any] = {
    "gpt2": GPT2Config(**TOKENS, vocab_size=VOCAB, n_embd=48, n_layer=2, n_head=4, n_positions=64),
    "mixtral": MixtralConfig(
        **SIZES | {"num_hidden_layers": 2}, num_local_experts=3, sliding_window=None
    ),
    "bloom": BloomConfig(**TOKENS, vocab_size=VOCAB, hidden_size=48, n_layer=2, n_head=4),
    "mamba": MambaConfig(**TOKENS, vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2),
}


def random_model(name: str, seed: int = 0) -> PreTrainedModel:
    """In float32, with clear preferences; norms and biases too differ from their first values."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config({**OURS, **OTHERS}[name], dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1 or name in OTHERS:
                weight.add_(torch.randn_like(weight) * 0.2)
    return model.eval()


def save_bundle(folder: Path, target: PreTrainedModel, draft: PreTrainedModel) -> Bundle:
    """A bundle of a target and a draft with a byte tokenizer, of which they know the first ids."""
    byte_tokenizer().save_pretrained(folder / "tokenizer")
    target.save_pretrained(folder / "target")
    draft.save_pretrained(folder / "draft")
    parts = {part: part for part in ("tokenizer", "target", "draft")}
    (folder / "bundle.json").write_text(json.dumps({"name": "zoo", "parts": parts}))
    return load_bundle(folder)
