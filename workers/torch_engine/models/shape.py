"""The sizes and features of a Llama-like model."""

from dataclasses import dataclass

from workers.torch_engine.models.rotary import Rotary


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
