"""A decoder block that is applied repeatedly to its own outputs, as in drafting."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from training.model import Mlp, causal_attention, hidden_keys, rotate


@dataclass
class Roll:
    """The state of one roll over a batch.

    documents: int [b, t]. seen: keys and values [b, kv_heads, t, d] of every step so far.
    """

    documents: Tensor
    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class RolledAttention(nn.Module):
    """Attention whose step j at slot i sees the same keys as decoding does.

    These are the first step's keys of the slots up to i, and the slot's own keys of the steps
    before, at rotary positions i + 1 .. i + j (training-time test, arXiv 2503.01840 section 3.2).
    """

    inverse: Tensor

    def __init__(self, config: LlamaConfig, width: int) -> None:
        super().__init__()
        assert config.num_key_value_heads is not None
        assert config.head_dim is not None
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.dim = config.head_dim
        self.q_proj = nn.Linear(width, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, config.hidden_size, bias=False)
        rotary = LlamaRotaryEmbedding(config)
        self.register_buffer("inverse", rotary.inv_freq, persistent=False)
        self.scaling = float(rotary.attention_scaling)

    def angles(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [count, head_dim] of the positions from `first`."""
        positions = torch.arange(first, first + count, device=self.inverse.device)
        angle = positions[:, None] * self.inverse.float()
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos() * self.scaling, angle.sin() * self.scaling

    def forward(self, x: Tensor, roll: Roll) -> Tensor:
        b, t, _ = x.shape
        step = len(roll.seen)
        cos, sin = self.angles(step, t)
        q = self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        roll.seen.append((k, v))
        y = causal_attention(q, k, v, roll.documents) if step == 0 else rolled_attention(q, roll)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(b, t, -1))
        return out


def rolled_attention(q: Tensor, roll: Roll, block: int = 256) -> Tensor:
    """Attend in a later step: q [b, h, t, d] -> [b, h, t, d]."""
    b, h, t, d = q.shape
    (first_k, first_v), *own = roll.seen
    kv = first_k.shape[1]
    group = h // kv
    q = q.reshape(b, kv, group, t, d) * d**-0.5
    own_scores = torch.stack([(q * k.unsqueeze(2)).sum(-1) for k, _ in own], dim=-1)
    out = []
    for start in range(0, t, block):
        end = min(start + block, t)
        rows = q[..., start:end, :].reshape(b * kv, group * (end - start), d)
        hidden = hidden_keys(roll.documents, start, end, kv).repeat(1, group, 1)
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(hidden, float("-inf"))
        keys = first_k[:, :, :end].reshape(b * kv, end, d)
        scores = torch.baddbmm(mask, rows, keys.transpose(1, 2))
        mine = own_scores[..., start:end, :].reshape(b * kv, group * (end - start), len(own))
        shares = torch.cat((scores, mine), dim=-1).softmax(-1)
        y = shares[..., :end] @ first_v[:, :, :end].reshape(b * kv, end, d)
        y = y.view(b, kv, group, end - start, d)
        for m, (_, v) in enumerate(own):
            share = shares[..., end + m].view(b, kv, group, -1, 1)
            y = y + share * v[:, :, None, start:end]
        out.append(y)
    return torch.cat(out, dim=3).reshape(b, h, t, d)


class RolledBlock(nn.Module):
    """Attention over inputs of `width`, then the MLP, on a residual stream of the target's width.

    Names are as in transformers.
    """

    def __init__(self, config: LlamaConfig, width: int) -> None:
        super().__init__()
        self.self_attn = RolledAttention(config, width)
        self.mlp = Mlp(config.hidden_size, config.intermediate_size)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, residual: Tensor, x: Tensor, roll: Roll) -> Tensor:
        """Apply the block to residual [b, t, hidden] and the attention's input x [b, t, width]."""
        residual = residual + self.self_attn(x, roll)
        out: Tensor = residual + self.mlp(self.post_attention_layernorm(residual))
        return out


def initialise(head: nn.Module) -> None:
    """Initialise matrices at random, smaller ones if they write to the residual stream."""
    for name, p in head.named_parameters():
        if p.ndim == 2:
            scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            nn.init.normal_(p, std=0.5 * scale * p.shape[1] ** -0.5)
