"""A random LoRA adapter in PEFT's format."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, PreTrainedModel

RANK, ALPHA = 4, 8
LAYERS = ("q_proj", "v_proj", "down_proj")


def save_adapter(target: Path, adapter: Path, **config: Any) -> PreTrainedModel:
    """Save an adapter. Return the target with its weights merged, in float32."""
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    draw, weights = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for name, layer in model.named_modules():
        if name.endswith(LAYERS):
            down = torch.randn(RANK, layer.in_features, generator=draw) / layer.in_features**0.5
            up = torch.randn(layer.out_features, RANK, generator=draw)
            up *= layer.weight.detach().std()
            weights |= {
                f"base_model.model.{name}.lora_A.weight": down,
                f"base_model.model.{name}.lora_B.weight": up,
            }
            layer.weight.data += ALPHA / RANK * up @ down
    adapter.mkdir()
    save_file(weights, adapter / "adapter_model.safetensors")
    config |= {"peft_type": "LORA", "task_type": "CAUSAL_LM", "target_modules": LAYERS}
    config |= {"r": RANK, "lora_alpha": ALPHA}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    return model
