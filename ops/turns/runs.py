"""Conversations of two turns, one at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.progress import Progress

from ops.cli.settings import Setup
from ops.measure.decoding import decode
from ops.measure.engines import Engines, engines_of
from ops.measure.prompts import Prompt
from router.speedup import speedup
from schemas import SamplingParams
from workers.bundle import Bundle
from workers.chat_template import encode_chat

QUESTION = "Please say that again in other words."
"""The second turn."""


@dataclass(frozen=True)
class Turn:
    """The second turn of a conversation, whose prompt has so many tokens."""

    method: str
    remembered: bool
    prompt_tokens: int
    first_token_seconds: float


async def measure(
    setup: Setup, bundle: Bundle, prompts: Sequence[Prompt], max_tokens: int, bar: Progress
) -> list[Turn]:
    """Every prompt by every method, with and without a memory of the first turn; conversations
    that do not fit into the engine's context are left out."""
    task = bar.add_task("conversations", total=2 * len(prompts) * len(setup.methods))
    turns = list[Turn]()
    for spec in setup.methods:
        alone = replace(setup, methods=(spec,))
        for remembered in (False, True):
            with engines_of(alone, bundle, "turns", prefix_cache=remembered) as engines:
                await _turn(engines, spec.name, remembered, bundle, prompts[0], 8)  # allocates
                for prompt in prompts:
                    if _fits(setup, bundle, prompt, max_tokens):
                        turn = _turn(engines, spec.name, remembered, bundle, prompt, max_tokens)
                        turns.append(await turn)
                    bar.advance(task)
    return turns


def figures_of(turns: Sequence[Turn]) -> dict[str, Any]:
    """By method: median and 95th percentile, and how many times sooner the median is."""
    figures = dict[str, Any]()
    for method in dict.fromkeys(turn.method for turn in turns):
        found = dict[str, Any]()
        for name, remembered in (("anew", False), ("remembered", True)):
            mine = [t for t in turns if (t.method, t.remembered) == (method, remembered)]
            milliseconds = [1e3 * turn.first_token_seconds for turn in mine]
            found[name] = {
                "turns": len(mine),
                "prompt_tokens": float(np.mean([turn.prompt_tokens for turn in mine])),
                "median_ms": float(np.median(milliseconds)),
                "p95_ms": float(np.percentile(milliseconds, 95)),
            }
        anew, later = found["anew"]["median_ms"], found["remembered"]["median_ms"]
        found["times_sooner"] = speedup(1.0 / anew, 1.0 / later)
        figures[method] = found
    return figures


def _fits(setup: Setup, bundle: Bundle, prompt: Prompt, max_tokens: int) -> bool:
    asked = [*prompt.messages, {"role": "assistant", "content": ""}, _question()]
    tokens = len(encode_chat(bundle.tokenizer(), asked, add_generation_prompt=True))
    return tokens + 2 * max_tokens <= setup.engine.max_context


async def _turn(
    engines: Engines, method: str, remembered: bool, bundle: Bundle, prompt: Prompt, most: int
) -> Turn:
    tokenizer, messages = bundle.tokenizer(), list(prompt.messages)
    first = encode_chat(tokenizer, messages, add_generation_prompt=True)
    sampling = SamplingParams(max_tokens=most)
    answer = await decode(engines, f"{prompt.id} 1", method, first, sampling)
    messages += [{"role": "assistant", "content": answer.text}, _question()]
    second = encode_chat(tokenizer, messages, add_generation_prompt=True)
    again = await decode(engines, f"{prompt.id} 2", method, second, sampling)
    return Turn(method, remembered, len(second), again.first_token_seconds)


def _question() -> dict[str, str]:
    return {"role": "user", "content": QUESTION}
