"""Drafters in the formats of public checkpoints, made of the demo's parts or random weights."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from schemas import MethodSpec
from schemas.method import Setting
from workers.bundle import Bundle, load_bundle

MASK_TOKEN = 3
"""A token of the demo's vocabulary that answers seldom have."""


def drafting(name: str, drafter: str, tokens: int = 4, **settings: Setting) -> MethodSpec:
    return MethodSpec(
        name=name,
        engine="vllm",
        drafter=drafter,
        verifier="rejection",
        lossless=True,
        source="a test",
        settings={"drafter": settings, "stop": {"gamma": tokens}},
    )


def with_part(bundle: Bundle, folder: Path, part: str) -> Bundle:
    """Return a copy of the bundle in `folder` that has one more part, in a folder of its name."""
    shutil.copytree(bundle.path, folder, dirs_exist_ok=True)
    body = json.loads((folder / "bundle.json").read_text())
    body["parts"][part] = part
    (folder / "bundle.json").write_text(json.dumps(body))
    return load_bundle(folder)


def peagle(bundle: Bundle, folder: Path) -> None:
    """Write the bundle's EAGLE-3 head as P-EAGLE's: with a mask token, whose state is random."""
    shutil.copytree(bundle.part("eagle3"), folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"pard_token": MASK_TOKEN}))
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(0)
    state = torch.randn(1, 1, 3 * config["hidden_size"]) * 0.1
    save_file(weights | {"mask_hidden": state}, folder / "model.safetensors", {"format": "pt"})


def dflash(bundle: Bundle, folder: Path) -> None:
    """Write a DFlash drafter of one layer for the bundle's target, with random weights."""
    target = json.loads((bundle.part("target") / "config.json").read_text())
    hidden, inner = target["hidden_size"], target["intermediate_size"]
    heads, groups, width = (
        target[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    layers = [2, 7, 11]
    copied = (
        *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        *("head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act"),
    )
    config = {name: target[name] for name in copied} | {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "num_target_layers": target["num_hidden_layers"],
        "rope_theta": 10000.0,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "block_size": 8,
        "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": layers},
        "dtype": "float32",
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {
        "fc": (hidden, hidden * len(layers)),
        "hidden_norm": (hidden,),
        "norm": (hidden,),
        "layers.0.input_layernorm": (hidden,),
        "layers.0.post_attention_layernorm": (hidden,),
        "layers.0.self_attn.q_proj": (heads * width, hidden),
        "layers.0.self_attn.k_proj": (groups * width, hidden),
        "layers.0.self_attn.v_proj": (groups * width, hidden),
        "layers.0.self_attn.o_proj": (hidden, heads * width),
        "layers.0.self_attn.q_norm": (width,),
        "layers.0.self_attn.k_norm": (width,),
        "layers.0.mlp.gate_proj": (inner, hidden),
        "layers.0.mlp.up_proj": (inner, hidden),
        "layers.0.mlp.down_proj": (hidden, inner),
    }
    torch.manual_seed(0)
    weights = {
        f"{name}.weight": torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02
        for name, shape in shapes.items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
