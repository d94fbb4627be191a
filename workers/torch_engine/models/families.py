"""Read config.json of the model families that our own forward computes."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from workers.bundle import BundleError, read_json
from workers.target_sizes import read_config
from workers.torch_engine.models.shape import Attention, LlamaShape, read_rotary

ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")
LAYER_TYPES = ("full_attention", "sliding_attention")
SIZES = (
    *("head_dim", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"),
    *("num_key_value_heads", "vocab_size"),
)
CHOICES = ("attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps", "tie_word_embeddings")
"""With SIZES and the rotary embedding all that the shape of a Llama depends on."""


class NotCoveredError(BundleError):
    """Our own forward does not compute this config; the message names the field."""


@dataclass(frozen=True)
class Family:
    """Features that a `model_type` implies beyond its config; defaults are Llama's.

    A str names the field of the config that decides. windows: whether `sliding_window` applies to
    no layer, to all, or to those that `layer_types` names. query_scalar: scores are divided by the
    root of `query_pre_attn_scalar`. Other fields are as in LlamaShape.
    """

    activation: str = "hidden_act"
    qkv_bias: bool | str = "attention_bias"
    out_bias: bool | str = "attention_bias"
    mlp_bias: bool | str = False
    windows: Literal["none", "all", "by_type"] = "none"
    qk_norm: bool = False
    scaled_embedding: bool = False
    norm_offset: float = 0.0
    sandwich: bool = False
    query_scalar: bool = False
    score_cap: str | None = None
    logit_cap: str | None = None
    partial_rotary: bool = False
    fused: bool = False


FAMILIES = {
    "llama": Family(mlp_bias="mlp_bias"),
    "mistral": Family(qkv_bias=False, out_bias=False, windows="all"),
    "qwen2": Family(qkv_bias=True, out_bias=False, windows="by_type"),
    "qwen3": Family(qk_norm=True, windows="by_type"),
    "phi3": Family(qkv_bias=False, out_bias=False, windows="all", partial_rotary=True, fused=True),
    "gemma": Family(scaled_embedding=True, norm_offset=1.0),
    "gemma2": Family(
        activation="hidden_activation",
        windows="by_type",
        scaled_embedding=True,
        norm_offset=1.0,
        sandwich=True,
        query_scalar=True,
        score_cap="attn_logit_softcapping",
        logit_cap="final_logit_softcapping",
    ),
    "gemma3_text": Family(
        activation="hidden_activation",
        windows="by_type",
        qk_norm=True,
        scaled_embedding=True,
        norm_offset=1.0,
        sandwich=True,
        query_scalar=True,
        logit_cap="final_logit_softcapping",
    ),
}


def read_shape(folder: Path) -> LlamaShape:
    """Read a part's config.json, of this transformers release or an older one.

    Raises BundleError without a config.json, NotCoveredError for features that our forward does
    not compute.
    """
    if not (folder / "config.json").is_file():
        raise BundleError(f"{folder}/config.json is missing: download the model again")
    try:
        return _shape(_complete(folder) or read_config(folder))
    except ValueError as error:
        raise NotCoveredError(f"{folder}/config.json: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise BundleError(f"{folder}/config.json describes no model: {error!r}") from error


def _complete(folder: Path) -> SimpleNamespace | None:
    """Return a config.json in which transformers would change nothing that a shape has; else None.

    With torch, transformers' config classes import its models: 8 seconds of a core.
    """
    body = read_json(folder / "config.json")
    rope = body.get("rope_parameters")
    complete = (
        body.get("model_type") == "llama"
        and body.keys() >= {*CHOICES}
        and all(type(body.get(name)) is int and body[name] > 0 for name in SIZES)
        and isinstance(rope, dict)
        and rope.get("rope_type") == "default"
        and type(rope.get("rope_theta")) is float
        and not body.keys() & {"rope_scaling", "rope_theta"}  # an older release's, which count too
    )
    return SimpleNamespace(**body) if complete else None


def _shape(config: Any) -> LlamaShape:
    """Return the shape of a config. Raises ValueError naming a field that no family covers."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise ValueError(f"model_type is {config.model_type!r}")
    for name in ("quantization_config", "use_bidirectional_attention"):
        if getattr(config, name, None):
            raise ValueError(f"{name} is set")
    activation = getattr(config, family.activation)
    if activation not in ACTIVATIONS:
        raise ValueError(f"{family.activation} is {activation!r}")

    def flag(value: bool | str) -> bool:
        return bool(getattr(config, value)) if isinstance(value, str) else value

    def cap(field: str | None) -> float | None:
        return None if field is None else getattr(config, field)

    scalar = config.query_pre_attn_scalar if family.query_scalar else None
    return LlamaShape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None)
        or config.hidden_size // config.num_attention_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        eps=config.rms_norm_eps,
        attentions=_attentions(config, family),
        activation=activation,
        embedding_scale=config.hidden_size**0.5 if family.scaled_embedding else 1.0,
        norm_offset=family.norm_offset,
        sandwich=family.sandwich,
        qk_norm=family.qk_norm,
        qkv_bias=flag(family.qkv_bias),
        out_bias=flag(family.out_bias),
        mlp_bias=flag(family.mlp_bias),
        score_scale=None if scalar is None else scalar**-0.5,
        score_cap=cap(family.score_cap),
        logit_cap=cap(family.logit_cap),
        tied=bool(config.tie_word_embeddings),
        fused=family.fused,
        max_positions=_max_positions(config),
    )


def _attentions(config: Any, family: Family) -> tuple[Attention, ...]:
    """Return every layer's window and rotary angles, which may depend on the layer type."""
    kinds: list[str] = [{"all": LAYER_TYPES[1]}.get(family.windows, LAYER_TYPES[0])]
    kinds *= config.num_hidden_layers
    if family.windows == "by_type":
        kinds = list(config.layer_types)
    unknown = sorted({*kinds} - {*LAYER_TYPES})
    if unknown or len(kinds) != config.num_hidden_layers:
        raise ValueError(f"layer_types has {unknown or len(kinds)}")
    window = None if family.windows == "none" else config.sliding_window
    made = {
        kind: Attention(
            read_rotary(
                config,
                kind if kind in config.rope_parameters else None,
                partial=family.partial_rotary,
            ),
            window if kind == LAYER_TYPES[1] else None,
        )
        for kind in set(kinds)
    }
    return tuple(made[kind] for kind in kinds)


def _max_positions(config: Any) -> int | None:
    """Return the trained length if dynamic rotary scaling would change cached angles beyond it."""
    rope = config.rope_parameters
    kinds = [value for value in rope.values() if isinstance(value, dict)] or [rope]
    dynamic = any(kind.get("rope_type") == "dynamic" for kind in kinds)
    return int(config.max_position_embeddings) if dynamic else None
