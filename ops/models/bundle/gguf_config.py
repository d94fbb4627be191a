"""A GGUF file's fields as a Hugging Face config: all of them, or a refusal that names one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ops.models.bundle.gguf_file import FIX, GgufFile
from ops.models.bundle.gguf_rope import rope_parameters

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
GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
"""llama.cpp recognises Gemma's 27B models by their layers and scales their scores by hidden / heads
instead of by a head's width."""
LOCAL_BASE = 10000.0
"""The rotary base of Gemma 3's local layers, which is not in its files."""


@dataclass(frozen=True)
class Architecture:
    """What an architecture's fields mean.

    model_type: Hugging Face's name. needed, carried: more fields that must or may be in the file,
    with the names that the config gives them. more: adds what follows from the other fields.
    interleaved: whether rotary pairs of queries and keys are neighbours. norm_offset: what the file
    adds to the weights of norms. partial_rotary: whether a part of a head may be rotated.
    """

    model_type: str
    needed: dict[str, str] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)
    more: Callable[[GgufFile, dict[str, Any]], dict[str, Any]] | None = None
    interleaved: bool = False
    norm_offset: float = 0.0
    partial_rotary: bool = False


def _gemma2(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    return {"query_pre_attn_scalar": _score_width(file, config)}


def _gemma3(file: GgufFile, config: dict[str, Any]) -> dict[str, Any]:
    local = file.number("gemma3.rope.freq_base_swa", LOCAL_BASE)
    return {
        "query_pre_attn_scalar": _score_width(file, config),
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        },
    }


def _score_width(file: GgufFile, config: dict[str, Any]) -> int:
    if config["num_hidden_layers"] == GEMMA_27B_LAYERS[file.architecture]:
        return int(config["hidden_size"] // config["num_attention_heads"])
    return int(config["head_dim"])


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
        more=_gemma2,
        norm_offset=1.0,
    ),
    "gemma3": Architecture(
        "gemma3_text", needed=WINDOW, carried=FINAL_CAP, more=_gemma3, norm_offset=1.0
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
    import torch
    from transformers import AutoConfig

    architecture = architecture_of(file)
    _refuse_unknown(file, architecture)
    config = _sizes(file)
    rotary = _whole(file, "rope.dimension_count", config["head_dim"])
    if rotary != config["head_dim"] and not architecture.partial_rotary:
        raise file.refusal(
            f"{file.architecture}.rope.dimension_count is {rotary} of {config['head_dim']}: {FIX}"
        )
    config["rope_parameters"] = rope_parameters(file, rotary)
    if architecture.partial_rotary:
        share = rotary / config["head_dim"]
        config["rope_parameters"]["partial_rotary_factor"] = share
    for key, name in {**architecture.needed, **architecture.carried}.items():
        full = f"{file.architecture}.{key}"
        if key in architecture.needed or full in file.fields:
            file.number(full)
        config[name] = file.fields.get(full)
    if architecture.more is not None:
        config |= architecture.more(file, config)
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
    if file.architecture == "gemma3":
        known.add("rope.freq_base_swa")
    for key, value in file.fields.items():
        name = key.removeprefix(prefix)
        if not key.startswith(prefix) or name in known or name.startswith("rope.scaling."):
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
