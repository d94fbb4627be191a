"""A Llama for training, saved in exactly the layout transformers and vLLM load."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, LlamaConfig

from workers.torch_engine.models.families import read_shape
from workers.torch_engine.models.rotary import Rotary
from workers.torch_engine.models.shape import Attention as LayerAttention
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.weights import load_model_weights


@dataclass(frozen=True)
class Geometry:
    """The shape of a Llama with tied embeddings; widths in elements, context in tokens."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    context: int = 2048
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    def config(self) -> LlamaConfig:
        """transformers' configuration; ids 0, 1, 2 are padding, begin, end as in the tokenizer."""
        return LlamaConfig(
            architectures=["LlamaForCausalLM"],
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            intermediate_size=self.ffn,
            vocab_size=self.vocab,
            max_position_embeddings=self.context,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            rms_norm_eps=self.norm_eps,
            tie_word_embeddings=True,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            dtype="bfloat16",
        )

    @classmethod
    def read(cls, folder: Path, shape: LlamaShape) -> "Geometry":
        """Read what `config().save_pretrained(folder)` wrote. shape: the same config's.

        Raises ValueError for a model that has more to it than a Geometry says.
        """
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        geometry = cls(
            hidden=shape.hidden,
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            ffn=shape.ffn,
            vocab=shape.vocab,
            context=config.max_position_embeddings,
            rope_theta=config.rope_parameters.get("rope_theta", 0.0),
            norm_eps=shape.eps,
        )
        if config.model_type != "llama" or shape != geometry.shape():
            raise ValueError(
                f"{folder}/config.json: only a plain Llama with tied embeddings and unscaled "
                "rotary embeddings is trained further here"
            )
        return geometry

    def shape(self) -> LlamaShape:
        """What the engine's forward computes for it."""
        rotary = Rotary.plain(self.head_dim, self.rope_theta)
        return LlamaShape(
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            ffn=self.ffn,
            vocab=self.vocab,
            eps=self.norm_eps,
            attentions=(LayerAttention(rotary),) * self.layers,
        )


class Attention(nn.Module):
    def __init__(self, g: Geometry) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = g.heads, g.kv_heads, g.head_dim
        self.q_proj = nn.Linear(g.hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(g.hidden, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(g.hidden, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, g.hidden, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, documents: Tensor | None = None
    ) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, self.dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, self.dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = causal_attention(q, k, v, documents)
        out: Tensor = self.o_proj(y.transpose(1, 2).reshape(b, t, -1))
        return out


class Mlp(nn.Module):
    def __init__(self, hidden: int, ffn: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, ffn, bias=False)
        self.up_proj = nn.Linear(hidden, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, g: Geometry) -> None:
        super().__init__()
        self.self_attn = Attention(g)
        self.mlp = Mlp(g.hidden, g.ffn)
        self.input_layernorm = nn.RMSNorm(g.hidden, eps=g.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(g.hidden, eps=g.norm_eps)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, documents: Tensor | None = None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, documents)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Llama(nn.Module):
    """Parameter names are transformers' own below the prefix `model.`; embeddings are tied."""

    cos: Tensor
    sin: Tensor

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.embed_tokens = nn.Embedding(geometry.vocab, geometry.hidden)
        self.layers = nn.ModuleList(Layer(geometry) for _ in range(geometry.layers))
        self.norm = nn.RMSNorm(geometry.hidden, eps=geometry.norm_eps)
        cos, sin = rotary(geometry)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        depth_scale = (2 * self.geometry.layers) ** -0.5
        for name, p in self.named_parameters():
            if p.ndim == 2:
                scale = depth_scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(
                    p, std=0.02 * scale if "embed" in name else p.shape[1] ** -0.5 * 0.5 * scale
                )

    def hidden(self, ids: Tensor) -> Tensor:
        """Final hidden states after the last norm. ids: int64 [b, t] -> [b, t, hidden]."""
        return self.states(ids)[-1]

    def states(
        self, ids: Tensor, captures: Collection[int] = (), documents: Tensor | None = None
    ) -> list[Tensor]:
        """The hidden states that enter the layers named in `captures`, in the layers' order, and
        last the one after the final norm; each [b, t, hidden].

        ids: int64 [b, t]. documents: int [b, t], by which a token sees none of another document's.
        """
        t = ids.shape[1]
        x = self.embed_tokens(ids)
        cos, sin = self.cos[:t], self.sin[:t]
        kept = []
        for index, layer in enumerate(self.layers):
            if index in captures:
                kept.append(x)
            x = layer(x, cos, sin, documents)
        return [*kept, self.norm(x)]

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., vocab]."""
        return F.linear(hidden, self.embed_tokens.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [b, t, vocab]."""
        return self.logits(self.hidden(ids))

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors in bfloat16, loadable by transformers and vLLM."""
        folder.mkdir(parents=True, exist_ok=True)
        self.geometry.config().save_pretrained(folder)
        weights = {
            f"model.{k}": v.detach().to("cpu", torch.bfloat16).contiguous()
            for k, v in self.state_dict().items()
        }
        save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})

    @classmethod
    def load(cls, folder: Path) -> "Llama":
        """Load what `save` wrote, in float32.

        Raises BundleError where files or tensors are missing, ValueError for a model that is not a
        plain Llama with tied embeddings.
        """
        shape = read_shape(folder)
        geometry = Geometry.read(folder, shape)
        weights = load_model_weights(folder, shape)
        model = cls(geometry)
        own = {name.removeprefix("model."): value.float() for name, value in weights.items()}
        own.pop("lm_head.weight", None)
        model.load_state_dict(own)
        return model


def causal_attention(
    q: Tensor, k: Tensor, v: Tensor, documents: Tensor | None = None, block: int = 256
) -> Tensor:
    """Causal attention; q [b, h, t, d], k and v [b, h_kv, t, d] -> [b, h, t, d]. With `documents`
    (int [b, t]) a token sees only its own document.

    On the CPU torch's fused kernel trains at a third of the speed of plain batched products at
    these lengths (measured: 64 against 22 ms a layer for 4,096 tokens in rows of 256, bfloat16), so
    there the queries go in blocks, each seeing only the keys up to its own end.
    """
    b, h, t, d = q.shape
    if q.device.type != "cpu":
        if documents is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        seen = ~hidden_keys(documents, 0, t, 1)
        # torch's fused kernels take a mask or grouped heads, not both
        k, v = (x.repeat_interleave(h // x.shape[1], 1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, seen[:, None])
    kv = k.shape[1]
    group = h // kv
    q = q.reshape(b, kv, group, t, d)
    k, v = k.unsqueeze(2), v.unsqueeze(2)
    out = []
    for start in range(0, t, block):
        end = min(start + block, t)
        rows = q[..., start:end, :].reshape(b * kv, group * (end - start), d)
        keys = k[..., :end, :].reshape(b * kv, end, d)
        values = v[..., :end, :].reshape(b * kv, end, d)
        if documents is None:
            mask = torch.full((end - start, end), float("-inf"), dtype=q.dtype).triu(start + 1)
            mask = mask.repeat(group, 1).expand(rows.shape[0], -1, -1)
        else:
            hidden = hidden_keys(documents, start, end, kv)
            mask = torch.zeros(hidden.shape, dtype=q.dtype).masked_fill(hidden, float("-inf"))
            mask = mask.repeat(1, group, 1)
        scores = torch.baddbmm(mask, rows, keys.transpose(1, 2), alpha=d**-0.5)
        y = scores.softmax(-1) @ values
        out.append(y.view(b, h, end - start, d))
    return torch.cat(out, dim=2)


def hidden_keys(documents: Tensor, start: int, end: int, kv_heads: int) -> Tensor:
    """Which keys 0 .. end - 1 the queries start .. end - 1 do not see: the later ones and those of
    other documents; bool [b * kv_heads, end - start, end]."""
    places = torch.arange(end, device=documents.device)
    later = places[None, :] > places[start:end, None]
    other = documents[:, start:end, None] != documents[:, None, :end]
    return (later | other).repeat_interleave(kv_heads, 0)


def rotary(g: Geometry) -> tuple[Tensor, Tensor]:
    """cos and sin [context, head_dim], halves repeated as in transformers' Llama."""
    half = torch.arange(0, g.head_dim, 2, dtype=torch.float32)
    inverse = torch.tensor(g.rope_theta) ** (-half / g.head_dim)
    angle = torch.arange(g.context, dtype=torch.float32)[:, None] * inverse
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding on [b, heads, t, head_dim] (arXiv 2104.09864)."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)
