"""GGUF files of small random models, written as llama.cpp's converter writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ARCHITECTURES = {"gemma3_text": "gemma3"}
"""llama.cpp's names where they are not Hugging Face's."""
Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Spoils fields and tensors before they are written."""


def given(values: dict[str, Any]) -> Change:
    """Set fields; None removes one."""
    return lambda fields, _: fields.update(values)


def write_gguf(
    file: Path,
    model: Any,
    tokenizer: Any,
    quantisation: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "smollm",
    change: Change | None = None,
) -> None:
    """Write model and tokenizer; `change` may alter what is written."""
    config = model.config
    name = ARCHITECTURES.get(config.model_type, config.model_type)
    fields = {f"{name}.{key}": value for key, value in _sizes(config).items()}
    fields |= {f"{name}.{key}": value for key, value in _rope(config).items()}
    fields |= _tokenizer(tokenizer, pre)
    fields |= {
        "general.name": "A tiny model",
        "general.license": "apache-2.0",
        "general.file_type": int(gguf.LlamaFileType.MOSTLY_Q8_0),
    }
    tensors = {
        _gguf_name(name, hf, config.num_hidden_layers): _stored(hf, weight, config)
        for hf, weight in model.state_dict().items()
        if hf != "lm_head.weight" or not config.tie_word_embeddings
    }
    tensors |= _factors(config)
    if change is not None:
        change(fields, tensors)
    writer = gguf.GGUFWriter(file, fields.pop("general.architecture", name))
    for key, value in fields.items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for key, data in tensors.items():
        kind = quantisation if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(key, gguf.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _sizes(config: Any) -> dict[str, Any]:
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
    }
    if config.model_type in ("phi3", "gemma2", "gemma3_text"):
        sizes["attention.sliding_window"] = config.sliding_window
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, cap, None) is not None:
            sizes[cap] = getattr(config, cap)
    return sizes


def _rope(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    said = {
        "rope.freq_base": float(rope["rope_theta"]),
        "rope.dimension_count": int(head * rope.get("partial_rotary_factor", 1.0)),
    }
    if rope["rope_type"] in ("linear", "yarn"):
        said |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    if "original_max_position_embeddings" in rope and rope["rope_type"] == "yarn":
        said["rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return said


def _factors(config: Any) -> dict[str, Any]:
    """By how much Llama 3 divides its frequencies, as transformers computes them."""
    rope = config.rope_parameters
    if rope.get("rope_type") != "llama3":
        return {}
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
    plain = rope["rope_theta"] ** -(torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
    return {"rope_freqs.weight": (plain / scaled).float().numpy()}


def _tokenizer(tokenizer: Any, pre: str) -> dict[str, Any]:
    words = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda w: w[1])]
    added = tokenizer.added_tokens_decoder
    kinds = [1 if i not in added else 3 if added[i].special else 4 for i in range(len(words))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["Ġ a", "1 2"],
        "tokenizer.ggml.bos_token_id": tokenizer.bos_token_id,
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def _gguf_name(architecture: str, name: str, layers: int) -> str:
    arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == architecture)
    stem, _, suffix = name.rpartition(".")
    return f"{gguf.get_tensor_name_map(arch, layers).get_name(stem)}.{suffix}"


def _stored(name: str, weight: Any, config: Any) -> Any:
    """Gemma's norms with their offset; a Llama's queries and keys in interleaved rotary order."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    part = name.split(".")[-2]
    if config.model_type == "llama" and part in heads:
        halves = weight.view(heads[part], 2, -1, weight.shape[1])
        weight = halves.transpose(1, 2).reshape(weight.shape)
    if config.model_type.startswith("gemma") and part.endswith("norm"):
        weight = weight + 1
    return weight.float().numpy()
