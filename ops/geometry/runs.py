"""The runs of `bench geometry`: step times of random weights in the engine's own forward."""

import torch
from torch import Tensor

from ops.cli.boundary import InputError
from ops.measure.forwards import forward, median_seconds
from workers.torch_engine.models.llama import Llama
from workers.torch_engine.models.shape import LlamaShape

HEAD_DIM = 64
VOCAB = 4096
VERIFIED = (8, 17, 33)
BATCH = 8


def measure_geometries(
    shapes: list[tuple[int, int]], threads: int, dtype: str, vocab: int = VOCAB
) -> list[dict[str, object]]:
    """One row of step times for each (width, depth), in the order given.

    Medians over rounds in which all forwards take turns, 256 tokens into the context. `step_ms` is
    one token of one sequence; `verify_N` N tokens of one sequence and `batch_8` one token of eight
    sequences, both in steps; `one_layer` a head or draft of one layer of that width with the LM
    head, in steps. Raises InputError for a width that is no multiple of 64.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            return [_measure(shape_of(*pair, vocab), getattr(torch, dtype)) for pair in shapes]
    finally:
        torch.set_num_threads(before)


def shape_of(width: int, depth: int, vocab: int) -> LlamaShape:
    """A Llama of that size: heads of 64, grouped KV heads, SwiGLU of about 2.6 x width."""
    if width % HEAD_DIM:
        raise InputError(f"--shapes: width {width} must be a multiple of {HEAD_DIM}")
    heads = width // HEAD_DIM
    divisors = [d for d in range(1, heads // 2 + 1) if heads % d == 0]
    return LlamaShape(
        hidden=width,
        layers=depth,
        heads=heads,
        kv_heads=max(divisors, default=1),
        head_dim=HEAD_DIM,
        ffn=round(2.6 * width / HEAD_DIM) * HEAD_DIM,
        vocab=vocab,
    )


def random_weights(shape: LlamaShape) -> dict[str, Tensor]:
    """Small random weights of 16 bits under Hugging Face's names, the LM head tied to the
    embedding."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = {"model.embed_tokens.weight": (shape.vocab, shape.hidden)}
    for index in range(shape.layers):
        prefix = f"model.layers.{index}."
        sizes |= {
            f"{prefix}self_attn.q_proj.weight": (queries, shape.hidden),
            f"{prefix}self_attn.k_proj.weight": (keys, shape.hidden),
            f"{prefix}self_attn.v_proj.weight": (keys, shape.hidden),
            f"{prefix}self_attn.o_proj.weight": (shape.hidden, queries),
            f"{prefix}mlp.gate_proj.weight": (shape.ffn, shape.hidden),
            f"{prefix}mlp.up_proj.weight": (shape.ffn, shape.hidden),
            f"{prefix}mlp.down_proj.weight": (shape.hidden, shape.ffn),
        }
    weights = {name: (torch.randn(size) * 0.02).bfloat16() for name, size in sizes.items()}
    norms = [f"model.layers.{i}.{n}layernorm.weight" for i in range(shape.layers) for n in _NORMS]
    return weights | {name: torch.ones(shape.hidden) for name in [*norms, "model.norm.weight"]}


_NORMS = ("input_", "post_attention_")


def _measure(shape: LlamaShape, dtype: torch.dtype) -> dict[str, object]:
    weights = random_weights(shape)
    model = Llama(shape, weights, dtype, torch.device("cpu"))
    single = Llama(_one_layer(shape), weights, dtype, torch.device("cpu"))
    forwards = {"step": forward(model, 1, 1), "one_layer": forward(single, 1, 1)}
    forwards |= {f"verify_{n}": forward(model, 1, n) for n in VERIFIED}
    forwards[f"batch_{BATCH}"] = forward(model, BATCH, 1)
    seconds = median_seconds(forwards)
    step = seconds.pop("step")
    return {
        "shape": f"{shape.hidden}x{shape.layers}",
        "parameters_m": round(sum(w.numel() for w in weights.values()) / 1e6, 2),
        "step_ms": round(1e3 * step, 3),
        **{name: round(value / step, 3) for name, value in seconds.items()},
    }


def _one_layer(shape: LlamaShape) -> LlamaShape:
    return LlamaShape(**{**vars(shape), "layers": 1})
