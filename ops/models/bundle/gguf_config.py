"""A GGUF file's fields as a Hugging Face config: all of them, or a refusal that names one."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from ops.models.bundle.gguf_file import FIX, GgufFile

REQUIRED = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
EPSILON = "attention.layer_norm_rms_epsilon"
COMPUTED = {
    *("attention.head_count_kv", "attention.key_length", "attention.value_length", "vocab_size"),
    *("rope.dimension_count", "rope.freq_base", EPSILON),
}
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "tensor_data_layout": ("Meta AI original pth",),
}
"""Fields that may have these values only, which say nothing beyond a plain model. The layout is the
interleaved one of every Llama file."""
LOCAL_BASE = "gemma3.rope.freq_base_swa"
FREQUENCIES = "rope_freqs.weight"
DEFAULT_BASE = 10000.0
"""llama.cpp's default, and the base of Gemma 3's local layers, which is not in its files."""
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
"""Every published model with Llama 3's scaling has these."""
CONTEXTS = tuple(2**power for power in range(4, 21))
"""Original context lengths to try: the file holds the factors alone."""
CLOSE = 1e-3
"""Relative difference between factors that rounding explains."""
SCALING = {
    "type",
    "factor",
    "original_context_length",
    "attn_factor",
    "yarn_attn_factor",
    "finetuned",
    "yarn_beta_fast",
    "yarn_beta_slow",
}


@dataclass(frozen=True)
class Architecture:
    """What an architecture's fields mean.

    model_type: Hugging Face's name. needed, carried: more fields that must or may be in the file,
    with the names that the config gives them. largest: layers of Gemma's 27B model, by which
    llama.cpp recognises it; it scales scores by hidden / heads instead of by a head's width.
    interleaved: whether rotary pairs of queries and keys are neighbours. norm_offset: what the file
    adds to the weights of norms. partial_rotary: whether a part of a head may be rotated.
    """

    model_type: str
    needed: dict[str, str] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)
    largest: int | None = None
    interleaved: bool = False
    norm_offset: float = 0.0
    partial_rotary: bool = False


WINDOW = {"attention.sliding_window": "sliding_window"}
FINAL_CAP = {"final_logit_softcapping": "final_logit_softcapping"}
ARCHITECTURES = {
    "llama": Architecture("llama", interleaved=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "phi3": Architecture("phi3", carried=WINDOW, partial_rotary=True),
    "gemma2": Architecture(
        "gemma2",
        needed=WINDOW | {"attn_logit_softcapping": "attn_logit_softcapping"} | FINAL_CAP,
        largest=46,
        norm_offset=1.0,
    ),
    "gemma3": Architecture(
        "gemma3_text", needed=WINDOW, carried=FINAL_CAP, largest=62, norm_offset=1.0
    ),
}


def architecture_of(file: GgufFile) -> Architecture:
    """Look up the file's architecture; raises InputError for one that is not read."""
    found = ARCHITECTURES.get(file.architecture)
    if found is None:
        known = ", ".join(ARCHITECTURES)
        raise file.refusal(
            f"general.architecture is {file.architecture!r}: {known} are read: {FIX}"
        )
    return found


def read_config(file: GgufFile) -> Any:
    """Make the transformers config of the file's model, in bfloat16.

    Raises InputError for a field that is missing, has a value that no model has, or says something
    that the config would not.
    """
    architecture = architecture_of(file)
    _refuse_unknown(file, architecture)
    config = _sizes(file)
    rotary = _whole(file, "rope.dimension_count", config["head_dim"])
    if rotary != config["head_dim"] and not architecture.partial_rotary:
        raise file.refusal(
            f"{file.architecture}.rope.dimension_count is {rotary} of {config['head_dim']}: {FIX}"
        )
    config["rope_parameters"] = _rope_parameters(file, rotary)
    if architecture.partial_rotary:
        share = rotary / config["head_dim"]
        config["rope_parameters"]["partial_rotary_factor"] = share
    for key, name in {**architecture.needed, **architecture.carried}.items():
        full = f"{file.architecture}.{key}"
        if key in architecture.needed or full in file.fields:
            file.number(full)
        config[name] = file.fields.get(full)
    if architecture.largest is not None:
        largest = config["num_hidden_layers"] == architecture.largest
        wide = config["hidden_size"] // config["num_attention_heads"]
        config["query_pre_attn_scalar"] = wide if largest else config["head_dim"]
    if file.architecture == "gemma3":
        local = file.number(LOCAL_BASE, DEFAULT_BASE)
        config["rope_parameters"] = {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }
    if "general.name" in file.fields:
        config["_model_name_or_path"] = file.fields["general.name"]
    made: Any = AutoConfig.for_model(
        architecture.model_type,
        tie_word_embeddings="output.weight" not in file.tensors,
        dtype=torch.bfloat16,
        **config,
        **_special(file, config["vocab_size"]),
    )
    return made


def _refuse_unknown(file: GgufFile, architecture: Architecture) -> None:
    prefix = f"{file.architecture}."
    known = {*REQUIRED, *COMPUTED, *architecture.needed, *architecture.carried}
    for key, value in file.fields.items():
        name = key.removeprefix(prefix)
        if key == LOCAL_BASE or not key.startswith(prefix):
            continue
        if name in known or name.startswith("rope.scaling."):
            continue
        if value not in NEUTRAL.get(name, ()):
            raise file.refusal(f"{key} is {value}, which is not carried over: {FIX}")


def _sizes(file: GgufFile) -> dict[str, Any]:
    config: dict[str, Any] = {name: _whole(file, key) for key, name in REQUIRED.items()}
    if config["num_hidden_layers"] > len(file.tensors):  # each layer has several
        raise file.refusal(
            f"{file.architecture}.block_count is {config['num_hidden_layers']} and the file has "
            f"{len(file.tensors)} tensors: download it again"
        )
    heads = config["num_attention_heads"]
    config["num_key_value_heads"] = _whole(file, "attention.head_count_kv", heads)
    if heads % config["num_key_value_heads"]:
        raise file.refusal(
            f"{file.architecture}.attention.head_count is {heads}, no multiple of head_count_kv "
            f"({config['num_key_value_heads']})"
        )
    width = _whole(file, "attention.key_length", config["hidden_size"] // heads)
    if _whole(file, "attention.value_length", width) != width:
        raise file.refusal(f"{file.architecture}.attention.value_length is not key_length: {FIX}")
    epsilon = file.number(f"{file.architecture}.{EPSILON}")
    tokens = len(file.required("tokenizer.ggml.tokens"))
    if _whole(file, "vocab_size", tokens) != tokens:
        raise file.refusal(
            f"{file.architecture}.vocab_size is {file.fields[f'{file.architecture}.vocab_size']} "
            f"and tokenizer.ggml.tokens has {tokens}: they must be equal"
        )
    return config | {"head_dim": width, "rms_norm_eps": epsilon, "vocab_size": tokens}


def _whole(file: GgufFile, key: str, default: int | None = None) -> int:
    """A positive integer of the architecture's fields."""
    name = f"{file.architecture}.{key}"
    value = file.required(name) if default is None else file.fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise file.refusal(f"{name} is {value}: it must be one positive integer")
    return value


def _special(file: GgufFile, vocab: int) -> dict[str, Any]:
    """The ids of special tokens; answers end at each of the end tokens."""
    names = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "pad": "padding"}
    ids: dict[str, int | None] = {}
    for short, name in {**names, "unk": "unknown"}.items():
        ids[short] = token = file.fields.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None and not 0 <= token < vocab:
            raise file.refusal(
                f"tokenizer.ggml.{name}_token_id is {token}: valid ids are 0 to {vocab - 1}"
            )
    file.required("tokenizer.ggml.eos_token_id")
    ends = list(dict.fromkeys(ids[n] for n in ("eos", "eot", "eom") if ids[n] is not None))
    special: dict[str, Any] = {
        "bos_token_id": ids["bos"],
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "pad_token_id": ids["pad"],
    }
    return special if ids["unk"] is None else special | {"unk_token_id": ids["unk"]}


def _rope_parameters(file: GgufFile, dims: int) -> dict[str, Any]:
    """Translate the base, the scaling and the frequency factors of `dims` rotary dimensions.

    Raises InputError naming the field that no config expresses.
    """
    prefix = f"{file.architecture}.rope."
    base, scaling = file.number(f"{prefix}freq_base", DEFAULT_BASE), f"{prefix}scaling."
    named = {key.removeprefix(scaling) for key in file.fields if key.startswith(scaling)}
    for name in named - SCALING:
        raise file.refusal(f"{scaling}{name} is not carried over: {FIX}")
    kind = file.fields.get(f"{scaling}type", "none")
    factor = file.fields.get(f"{scaling}factor", 1.0)
    if kind != "yarn" and file.number(f"{scaling}attn_factor", 1.0) != 1.0:
        raise file.refusal(
            f"{scaling}attn_factor is {file.fields[f'{scaling}attn_factor']} without type 'yarn': "
            f"{FIX}"
        )
    plain = {"rope_theta": base, "rope_type": "default"}
    if kind in ("none", "linear") and factor in (0, 1):  # llama.cpp's words for no scaling
        return _with_factors(file, plain, dims)
    if kind == "none" and "type" in named:
        return _with_factors(file, plain, dims)
    if kind not in ("linear", "yarn"):
        raise file.refusal(
            f"{scaling}factor is {factor} and its type {kind!r}: linear and yarn are carried over: "
            f"{FIX}"
        )
    if FREQUENCIES in file.tensors:
        raise file.refusal(f"{FREQUENCIES} and {scaling}type {kind!r} exclude each other")
    number = file.number(f"{scaling}factor")
    scaled = plain | {"rope_type": kind, "factor": number}
    return scaled | _yarn(file, scaling, number) if kind == "yarn" else scaled


def _yarn(file: GgufFile, scaling: str, factor: float) -> dict[str, Any]:
    """YaRN's settings (arXiv 2309.00071); llama.cpp multiplies its attention factor with theirs."""
    context = file.number(f"{file.architecture}.context_length")
    original = file.number(f"{scaling}original_context_length", context)
    settings: dict[str, Any] = {"original_max_position_embeddings": int(original)}
    for name in ("beta_fast", "beta_slow"):
        if f"{scaling}yarn_{name}" in file.fields:
            settings[name] = file.number(f"{scaling}yarn_{name}")
    scale = file.number(f"{scaling}attn_factor", 1.0) * file.number(
        f"{scaling}yarn_attn_factor", 1.0
    )
    if scale != 1.0:
        settings["attention_factor"] = scale * (0.1 * math.log(factor) + 1.0)
    return settings


def _with_factors(file: GgufFile, plain: dict[str, Any], dims: int) -> dict[str, Any]:
    """Find Llama 3's settings whose factors are those of rope_freqs.weight, if the file has it."""
    if FREQUENCIES not in file.tensors:
        return plain
    factors = np.asarray(file.tensors[FREQUENCIES].data, dtype=np.float64).reshape(-1)
    if factors.shape != (dims // 2,) or not np.all(np.isfinite(factors) & (factors > 0)):
        raise file.refusal(f"{FREQUENCIES} must hold {dims // 2} positive factors")
    if np.allclose(factors, 1.0, rtol=CLOSE):
        return plain
    largest = float(factors.max())
    for context in CONTEXTS:
        if np.allclose(
            _llama3(dims, plain["rope_theta"], largest, context), factors, rtol=CLOSE, atol=0
        ):
            return {
                "rope_theta": plain["rope_theta"],
                "rope_type": "llama3",
                "factor": largest,
                **LLAMA3,
                "original_max_position_embeddings": context,
            }
    raise file.refusal(f"{FREQUENCIES} holds factors that are not Llama 3's: {FIX}")


def _llama3(dims: int, base: float, factor: float, context: int) -> np.ndarray:
    """The factors [dims / 2] by which Llama 3 divides its frequencies."""
    low, high = LLAMA3.values()
    wavelength = 2 * np.pi * base ** (np.arange(0, dims, 2) / dims)
    smooth = np.clip((context / wavelength - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)
