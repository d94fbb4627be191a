"""The sizes and features of a Llama-like model, its rotary embeddings included."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PLAIN_BASE = 10000.0
SCALED = ("linear", "dynamic", "llama3", "yarn")
"""Variants whose frequencies do not depend on the sequence (`dynamic`: up to its trained length).
longrope is not supported: it changes all frequencies once a sequence has grown long."""


@dataclass(frozen=True)
class Rotary:
    """Pairs (i, i + n) of a head's first 2n dimensions turn by position * frequencies[i].

    factor: scales what was turned (YaRN's attention factor, arXiv:2309.00071).
    """

    frequencies: tuple[float, ...]
    factor: float = 1.0

    @staticmethod
    def plain(dims: int, base: float = PLAIN_BASE) -> "Rotary":
        """Return the unscaled variant over `dims` dimensions (RoFormer, arXiv:2104.09864)."""
        steps = torch.arange(0, dims, 2, dtype=torch.float32) / dims
        return Rotary(tuple((1.0 / base**steps).tolist()))

    @property
    def dims(self) -> int:
        """Return the number of dimensions of a head that turn."""
        return 2 * len(self.frequencies)

    def table(self, positions: int, head_dim: int, device: torch.device) -> Tensor:
        """Return complex factors [positions, 1, head_dim / 2] of neighbouring pairs.

        The factor of a pair that does not turn is 1.
        """
        frequencies = torch.tensor(self.frequencies, dtype=torch.float32, device=device)
        where = torch.arange(positions, dtype=torch.float32, device=device)
        angles = torch.outer(where, frequencies)
        turned = torch.polar(torch.full_like(angles, self.factor), angles)
        still = head_dim // 2 - len(self.frequencies)
        return torch.nn.functional.pad(turned, (0, still), value=1.0).unsqueeze(1)


def read_rotary(config: Any, kind: str | None, *, partial: bool) -> Rotary:
    """Return the rotary embedding that a transformers config describes.

    kind: the layer type, for configs with parameters for each. partial: whether the family turns
    `partial_rotary_factor` of a head. Raises ValueError naming an unknown variant.
    """
    settings = config.rope_parameters if kind is None else config.rope_parameters[kind]
    variant = settings.get("rope_type", "default")
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if variant == "default":
        share = settings.get("partial_rotary_factor", 1.0) if partial else 1.0
        return Rotary.plain(int(head_dim * share), settings["rope_theta"])
    if variant not in SCALED:
        raise ValueError(f"rope_type is {variant!r}")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, factor = ROPE_INIT_FUNCTIONS[variant](config, None, layer_type=kind)
    rotary = Rotary(tuple(frequencies.tolist()), float(factor))
    if rotary.dims != head_dim and not partial:
        raise ValueError(f"partial_rotary_factor turns {rotary.dims} of {head_dim} dimensions")
    return rotary


@dataclass(frozen=True)
class Attention:
    """One layer's attention. window: tokens that a token sees, itself included; None for all."""

    rotary: Rotary
    window: int | None = None


@dataclass(frozen=True)
class LlamaShape:
    """A decoder of pre-normed attention and gated MLP blocks; the defaults are a plain Llama.

    attentions: one per layer; () is full attention with plain rotary embeddings everywhere.
    activation: of the MLP's gate, by its transformers name. norm_offset: added to every norm's
    weight. sandwich: blocks norm their output too. score_scale: of query-key products, None for
    1 / sqrt(head_dim). score_cap, logit_cap: c in c * tanh(x / c). tied: the LM head is the
    embedding. fused: the checkpoint holds qkv and gate-up projections in one tensor each.
    max_positions: beyond it the forward would be wrong; None where there is no such limit.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    eps: float = 1e-5
    attentions: tuple[Attention, ...] = ()
    activation: str = "silu"
    embedding_scale: float = 1.0
    norm_offset: float = 0.0
    sandwich: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    score_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    tied: bool = True
    fused: bool = False
    max_positions: int | None = None

    @property
    def each_attention(self) -> tuple[Attention, ...]:
        """Return the attention of each layer."""
        return self.attentions or (Attention(Rotary.plain(self.head_dim)),) * self.layers
