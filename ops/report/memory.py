"""What weights and KV caches take by the formulas of Liu et al., appendix A.2."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ops.report.blocks import Section, Table
from ops.report.parameters import folders_of, parameters, stored_bytes
from schemas.base import Schema
from workers.bundle import Bundle

GIB, MIB, KIB = 2**30, 2**20, 2**10
HALF = 2
"""Bytes of a number in float16 and bfloat16."""


class ModelSpec(Schema):
    """What memory depends on; layers: those with a KV cache."""

    parameters: float
    layers: int
    kv_heads: int
    head_size: int


def static_gib(models: Iterable[ModelSpec], size: int = HALF) -> float:
    """GiB of the models' weights, `size` bytes each."""
    return sum(model.parameters for model in models) * size / GIB


def per_token_kib(models: Iterable[ModelSpec], size: int = HALF) -> float:
    """KiB of keys and values that a token of context takes in all models."""
    return sum(m.layers * 2 * m.kv_heads * m.head_size * size for m in models) / KIB


def spec_of(folder: Path) -> ModelSpec:
    """Read a model's sizes from its Hugging Face folder. Medusa heads have no KV cache."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    heads = config.get("num_attention_heads", 0)
    size = config.get("head_dim") or (config["hidden_size"] // heads if heads else 0)
    return ModelSpec(
        parameters=parameters(folder),
        layers=config.get("num_hidden_layers", 0) if heads else 0,
        kv_heads=config.get("num_key_value_heads", heads),
        head_size=size,
    )


def memory_section(bundle: Bundle, methods: Iterable[str]) -> Section:
    """Return the memory of a bundle's methods, as the study's Table 2 has it."""
    return Section(
        "memory",
        "Memory",
        [
            "By formula, in 16 bits a number: weights of the target and of what drafts, and keys "
            "and values of a token of context. Activations are left out, as in the study."
        ],
        [_of(bundle, methods)],
    )


def _of(bundle: Bundle, methods: Iterable[str]) -> Table:
    target = spec_of(bundle.part("target"))
    rows: list[list[Any]] = []
    for name in methods:
        folders = folders_of(name, bundle)
        models = [spec_of(folder) for folder in folders]
        static, token = static_gib(models), per_token_kib(models)
        stored = sum(map(stored_bytes, folders)) / MIB
        more = [static / static_gib([target]) - 1.0, token / per_token_kib([target]) - 1.0]
        rows.append([name, static * GIB / MIB, stored, token, *(100.0 * share for share in more)])
    return Table(
        "memory-here",
        "Memory of this bundle's methods",
        "What a method takes more than plain decoding is in per cent.",
        [
            "method",
            "static (MiB)",
            "weights as stored (MiB)",
            "per token (KiB)",
            "static, % more",
            "per token, % more",
        ],
        rows,
    )
