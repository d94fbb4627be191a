"""Helpers: run requests, and compare with Hugging Face."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM
from zoo import generated

from schemas import DecodeChunk, DecodeRequest, DecodeStats, SamplingParams, TokenLogprobs
from workers.bundle import Bundle
from workers.engine import Engine

SMALL: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "joint_prompt_tokens": 1,  # not as a clock says
    "max_context": 256,
    "kv_slots": 2048,
}
NEAR_TIE = 1e-4


@dataclass
class Answer:
    """Everything an answer's chunks said."""

    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish: str | None = None
    error: str | None = None
    request_fault: bool = False
    stats: DecodeStats | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, chunk: DecodeChunk) -> None:
        self.tokens += chunk.token_ids
        self.drafted += chunk.drafted
        self.logprobs += chunk.logprobs
        self.texts.append(chunk.text)
        self.finish, self.error, self.stats = chunk.finish_reason, chunk.error, chunk.stats
        self.request_fault = chunk.request_fault


def request(
    method: str,
    prompt: Sequence[int],
    *,
    answered: Sequence[int] = (),
    scope: str = "",
    **sampling: Any,
) -> DecodeRequest:
    """A request with sampling parameters given by name; answered: the answer's beginning."""
    return DecodeRequest(
        request_id=f"{method}-{id(prompt)}",
        method=method,
        prompt_token_ids=tuple(prompt),
        answered_token_ids=tuple(answered),
        sampling=SamplingParams(**sampling),
        scope=scope,
    )


async def decode(
    engine: Engine, method: str, prompt: Sequence[int], *, stop_after: int = 0, **sampling: Any
) -> Answer:
    """Run one request; with stop_after, close the stream once so many tokens are there."""
    answer = Answer()
    async with contextlib.aclosing(engine.generate(request(method, prompt, **sampling))) as chunks:
        async for chunk in chunks:
            answer.add(chunk)
            if stop_after and len(answer.tokens) >= stop_after:
                break
    return answer


@lru_cache(maxsize=4)
def hugging_face(folder: Path) -> LlamaForCausalLM:
    """The reference model in float32."""
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


_known: dict[tuple[Path, tuple[int, ...]], tuple[int, list[int]]] = {}
"""By target and prompt: how many tokens Hugging Face was asked for at most, and what it said."""


def reference(bundle: Bundle, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Hugging Face's plain greedy output, of which the beginning does not depend on the length."""
    folder = bundle.part("target")
    key = folder, tuple(prompt)
    asked, tokens = _known.get(key, (0, []))
    if asked < max_tokens:
        tokens = generated(hugging_face(folder), prompt, max_tokens)
        _known[key] = max_tokens, tokens
    return tokens[:max_tokens]


def assert_greedy(
    bundle: Bundle, prompt: Sequence[int], answer: Sequence[int], max_tokens: int
) -> bool:
    """That Hugging Face's greedy decoding could have said it: each token is the target's best after
    those before it, or as good as the best one. One forward reads all of them, where decoding takes
    one a token. Returns whether every token is the best itself."""
    model = hugging_face(bundle.part("target"))
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *answer[:-1]]])).logits[0, len(prompt) - 1 :]
    best = logits.max(-1)
    gaps = best.values - logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    at = int(gaps.argmax())
    assert gaps[at] < NEAR_TIE, f"{answer[at]} at {at} is {gaps[at]} behind {best.indices[at]}"
    end = model.generation_config.eos_token_id
    assert end not in answer[:-1]
    assert len(answer) == max_tokens or answer[-1] == end
    return best.indices.tolist() == list(answer)


def assert_same(bundle: Bundle, prompt: Sequence[int], ours: list[int], theirs: list[int]) -> None:
    """Equal tokens, or a first difference where the target's two best logits nearly tie."""
    if ours == theirs:
        return
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    model = hugging_face(bundle.part("target"))
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *theirs[:at]]])).logits[0, -1]
    gap = float(logits.topk(2).values.diff().abs())
    assert gap < NEAR_TIE, f"differs at {at} with a gap of {gap}: {ours[at:]} != {theirs[at:]}"
