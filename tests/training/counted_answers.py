"""Answers in the counting language as a replay file, and a head that drafts nothing right."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from schemas import Sample


def write_replay(samples: list[Sample], domains: list[str], file: Path) -> Path:
    """Write answers as `specadapt train generate` does, each in its domain."""
    lines = [
        {"id": s.id, "domain": domain, "temperature": 0.0, "prompt": s.prompt_token_ids}
        | {"answer": s.answer_token_ids}
        for s, domain in zip(samples, domains, strict=True)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def emptied(head: Path, spoilt: Path) -> Path:
    """Write a copy of a head whose weights are 0: all of its logits are equal, and it drafts the
    first of its words, which no answer holds."""
    spoilt.mkdir()
    (spoilt / "config.json").write_bytes((head / "config.json").read_bytes())
    weights = load_file(head / "model.safetensors")
    for name, weight in weights.items():
        if weight.is_floating_point():
            weights[name] = torch.zeros_like(weight)
    save_file(weights, spoilt / "model.safetensors")
    return spoilt
