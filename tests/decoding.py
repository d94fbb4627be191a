"""Run requests on an engine and compare the answers with Hugging Face's."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from schemas import (
    DecodeChunk,
    DecodeRequest,
    DecodeStats,
    EngineConfig,
    MethodSpec,
    SamplingParams,
    TokenLogprobs,
)
from schemas.prefixes import HASH_BYTES
from workers.bundle import Bundle
from workers.engine import Engine
from workers.methods import METHODS
from workers.torch_engine.engine import PREFILL_CHUNK
from workers.torch_engine.target import Target

SMALL: dict[str, Any] = {
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "max_context": 256,
    "kv_slots": 2048,
}
NEAR_TIE = 1e-4
LOSSLESS = [m.name for m in METHODS.values() if m.lossless and m.engine == "torch"]


@contextlib.contextmanager
def reading(prefill_chunk: int = PREFILL_CHUNK, joint_prompt_tokens: int = 1) -> Iterator[None]:
    """Let engines that are loaded meanwhile read prompts in such pieces, and not as a clock says.

    joint_prompt_tokens: tokens of prompts that share one forward.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.torch_engine.engine.PREFILL_CHUNK", prefill_chunk)
        patch.setattr(Target, "joint_rows", lambda *_: joint_prompt_tokens)
        yield


def without_reading(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide settings into an engine's and those of `reading`."""
    own = {"prefill_chunk", "joint_prompt_tokens"}
    rest = {name: value for name, value in settings.items() if name not in own}
    return rest, {name: value for name, value in settings.items() if name in own}


@dataclass
class Answer:
    """The chunks of an answer, put together."""

    tokens: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
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
        self.prompt_logprobs += chunk.prompt_logprobs
        self.texts.append(chunk.text)
        self.finish, self.error, self.stats = chunk.finish_reason, chunk.error, chunk.stats
        self.request_fault = chunk.request_fault


def request(
    method: str,
    prompt: Sequence[int],
    *,
    answered: Sequence[int] = (),
    predicted: Sequence[int] = (),
    scope: str = "",
    adapter: str | None = None,
    kept: bool = True,
    **sampling: Any,
) -> DecodeRequest:
    """Return a request. `answered` is the beginning of an answer that another engine gave."""
    return DecodeRequest(
        request_id=f"{method}-{adapter}-{id(prompt)}",
        method=method,
        prompt_token_ids=tuple(prompt),
        answered_token_ids=tuple(answered),
        predicted_token_ids=tuple(predicted),
        sampling=SamplingParams(**sampling),
        scope=scope,
        adapter=adapter,
        kept=kept,
    )


async def decode(
    engine: Engine, method: str, prompt: Sequence[int], *, stop_after: int = 0, **sampling: Any
) -> Answer:
    """Run one request. Close the stream after `stop_after` tokens, unless it is 0."""
    answer = Answer()
    async with contextlib.aclosing(engine.generate(request(method, prompt, **sampling))) as chunks:
        async for chunk in chunks:
            answer.add(chunk)
            if stop_after and len(answer.tokens) >= stop_after:
                break
    return answer


async def decode_all(
    engine: Engine, jobs: Sequence[tuple[str, Sequence[int]]], tokens: int, **sampling: Any
) -> list[Answer]:
    """Run requests at once, by method and prompt, each for so many tokens."""
    asked = {"max_tokens": tokens, "ignore_eos": True, **sampling}
    return await asyncio.gather(*(decode(engine, m, ids, **asked) for m, ids in jobs))


def method_of(
    name: str, drafter: str, tree: str = "chain", verifier: str = "one_hot", /, **settings: Any
) -> MethodSpec:
    """Return a method of these parts that drafts three levels unless the settings say otherwise."""
    return MethodSpec(
        name=name,
        drafter=drafter,
        tree=tree,
        verifier=verifier,
        lossless=True,
        source="test",
        settings={"stop": {"gamma": 3}} | settings,
    )


def vllm_cpu(**settings: Any) -> EngineConfig:
    """Return the configuration of a vLLM engine on a CPU in float32."""
    settings = {"vllm": {"enforce_eager": True}, **settings}
    return EngineConfig(device="cpu", dtype="float32", **settings)


def reported(engine: Engine) -> set[bytes]:
    """Return the hashes of the prompts that the engine says it holds."""
    hashes = engine.load().prefixes
    return {hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, a minute at most."""
    async with asyncio.timeout(60.0):
        while not condition():
            await asyncio.sleep(0.005)


@lru_cache(maxsize=4)
def hugging_face(folder: Path) -> PreTrainedModel:
    """Load the reference model in float32."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if model.config.model_type.startswith("gemma"):
        model.set_attn_implementation("eager")  # the only implementation that caps scores
    return model.eval()


_known: dict[tuple[Path, tuple[int, ...]], tuple[int, list[int]]] = {}
"""By target and prompt: the most tokens asked for, and Hugging Face's answer of that length."""


def reference(bundle: Bundle, prompt: Sequence[int], max_tokens: int) -> list[int]:
    """Return Hugging Face's greedy answer. A shorter answer is the beginning of a longer one."""
    folder = bundle.part("target")
    key = folder, tuple(prompt)
    asked, tokens = _known.get(key, (0, []))
    if asked < max_tokens:
        ids = torch.tensor([list(prompt)])
        out = hugging_face(folder).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        tokens = out[0, len(prompt) :].tolist()
        _known[key] = max_tokens, tokens
    return tokens[:max_tokens]


def assert_greedy(
    bundle: Bundle,
    prompt: Sequence[int],
    answer: Sequence[int],
    max_tokens: int,
    *,
    ignore_eos: bool = False,
) -> bool:
    """Assert that each token is the target's best one after those before it, near-ties apart.

    One forward pass of Hugging Face's model reads the whole answer. Return whether every token is
    the best one itself.
    """
    model = hugging_face(bundle.part("target"))
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *answer[:-1]]])).logits[0, len(prompt) - 1 :]
    best = logits.max(-1)
    gaps = best.values - logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    at = int(gaps.argmax())
    assert gaps[at] < NEAR_TIE, f"{answer[at]} at {at} is {gaps[at]} behind {best.indices[at]}"
    end = model.generation_config.eos_token_id
    assert ignore_eos or end not in answer[:-1]
    assert len(answer) == max_tokens or answer[-1] == end
    return best.indices.tolist() == list(answer)
