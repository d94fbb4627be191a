"""A decoder block that is applied repeatedly to its own outputs, as in drafting."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaMLP,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from training.teacher import hidden_keys

BLOCK = 256
"""Queries whose scores are computed at once. On a CPU, blocks of plain products train in a third of
the time of torch's fused kernel at these lengths."""


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
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, x: Tensor, roll: Roll) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            project(x).view(b, t, -1, self.dim).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        first = len(roll.seen)
        positions = torch.arange(first, first + t, device=x.device)
        # Float32 angles, whatever the products are computed in.
        turns = self.rotary(self.rotary.inv_freq, positions[None])
        rotated = apply_rotary_pos_emb(q, k, *turns)
        q, k = (x.to(v.dtype) for x in rotated)
        roll.seen.append((k, v))
        out: Tensor = self.o_proj(_attended(q, roll).transpose(1, 2).reshape(b, t, -1))
        return out


def _attended(q: Tensor, roll: Roll) -> Tensor:
    """Attend to the first step's keys and to the slot's own of later steps.

    q: [b, h, t, d], as is the result.
    """
    b, h, t, d = q.shape
    (first_k, first_v), *own = roll.seen
    kv = first_k.shape[1]
    group = h // kv
    q = q.reshape(b, kv, group, t, d) * d**-0.5
    own_scores = [(q * k.unsqueeze(2)).sum(-1, keepdim=True) for k, _ in own]
    out = []
    for start in range(0, t, BLOCK):
        end = min(start + BLOCK, t)
        rows = q[..., start:end, :].reshape(b * kv, group * (end - start), d)
        hidden = hidden_keys(roll.documents, start, end)
        mask = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device)
        mask = mask.masked_fill(hidden, float("-inf")).repeat_interleave(kv, 0).repeat(1, group, 1)
        keys = first_k[:, :, :end].reshape(b * kv, end, d)
        scores = torch.baddbmm(mask, rows, keys.transpose(1, 2))
        mine = [s[..., start:end, :].reshape(b * kv, group * (end - start), 1) for s in own_scores]
        shares = torch.cat((scores, *mine), dim=-1).softmax(-1)
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
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]
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
