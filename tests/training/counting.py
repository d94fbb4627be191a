"""A language that a tiny model learns in seconds: counting in steps."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from spoiling import tensors
from transformers import LlamaConfig, LlamaForCausalLM

from schemas import Sample
from training.heads import new_head
from training.packing import Text
from training.teacher import Teacher

VOCABULARY = 64
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "head_dim": 16,
    "num_key_value_heads": 1,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
}
STEPS, ROWS = 100, 32


def make_target(**changes: Any) -> Any:
    """Return an untrained target of three layers, as EAGLE-3 reads so many."""
    torch.manual_seed(0)
    fields: dict[str, Any] = {**SHAPE, "tie_word_embeddings": True, **changes}
    return LlamaForCausalLM(LlamaConfig(**fields))


def train_counting() -> Any:
    """Train a target by next-token prediction, until it is sure of most tokens."""
    model = make_target()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, STEPS)
    texts = make_texts(STEPS * ROWS)
    for start in range(0, len(texts), ROWS):
        rows = [torch.from_numpy(text.tokens) for text in texts[start : start + ROWS]]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        logits = model(ids).logits[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(logits, ids[:, 1:].flatten(), ignore_index=0)
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model


def save_bundle(model: Any, folder: Path) -> Path:
    """Write a bundle of the target and untrained heads that draft the language's words."""
    parts = ("eagle3", "eagle", "medusa")
    model.to(torch.bfloat16).save_pretrained(folder / "target")
    model.float()
    teacher = Teacher.load(folder / "target")
    torch.manual_seed(0)
    for part in parts:
        new_head(part, teacher, torch.arange(6, 64), 2).save(folder / part)
    body = {"name": "counting", "parts": {part: part for part in ("target", *parts)}}
    (folder / "bundle.json").write_text(json.dumps(body))
    return folder


def make_samples(count: int) -> list[Sample]:
    """Answers in the language, one a second: of two clusters, half of them at temperature 0."""
    return [
        Sample(
            id=str(i),
            conversation=hashlib.sha256(str(i).encode()).hexdigest(),
            owner="",
            fit_id="fit",
            cluster=i % 2,
            method="eagle3",
            temperature=float(i // 2 % 2),
            prompt_token_ids=tuple(text.tokens[:3].tolist()),
            answer_token_ids=tuple(text.tokens[3:].tolist()),
            time=float(i + 1),
        )
        for i, text in enumerate(make_texts(count, seed=2))
    ]


def make_texts(count: int, seed: int = 0, longest: int = 60) -> list[Text]:
    """Counting sequences: the next token is the last one plus a step named by the first token."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        step, start = int(rng.integers(1, 4)), int(rng.integers(8, 60))
        numbers = [(start + step * i) % 56 + 8 for i in range(int(rng.integers(8, longest)))]
        texts.append(Text.of([1, 3 + step], numbers, "counting"))
    return texts


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
    shutil.copytree(head, spoilt)
    tensors(lambda weights: [w.zero_() for w in weights.values() if w.is_floating_point()])(spoilt)
    return spoilt
