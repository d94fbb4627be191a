"""One request to an engine, timed from the outside."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ops.harness.boundary import InputError
from ops.harness.engines import Engines
from ops.harness.output import quiet_transformers
from ops.harness.prompts import Prompt
from schemas import DecodeChunk, DecodeRequest, DecodeStats, SamplingParams
from workers.bundle import Bundle
from workers.chat_template import encode_chat, encode_text
from workers.engine import Engine


class DecodeFailedError(RuntimeError):
    """The engine failed on a request; the message is the engine's."""


@dataclass(frozen=True)
class Answer:
    """A timed answer. Seconds run from the request's start in the engine to its last token."""

    text: str
    token_ids: tuple[int, ...]
    seconds: float
    first_token_seconds: float
    stats: DecodeStats


async def decode(
    engine: Engine | Engines,
    request_id: str,
    method: str,
    prompt_token_ids: Sequence[int],
    sampling: SamplingParams,
    scope: str = "",
) -> Answer:
    """Decode one prompt to its end, as `answer_to` does.

    scope: drafters look up past answers of the same scope only.
    """
    return await answer_to(
        engine,
        DecodeRequest(
            request_id=request_id,
            method=method,
            prompt_token_ids=tuple(prompt_token_ids),
            sampling=sampling,
            scope=scope,
        ),
    )


async def answer_to(
    engine: Engine | Engines,
    request: DecodeRequest,
    on_chunk: Callable[[DecodeChunk], None] | None = None,
) -> Answer:
    """Decode a request to its end and time it; call `on_chunk` with each chunk.

    Raises what the engine raises, and DecodeFailedError if the answer ends with an error.
    """
    text: list[str] = []
    token_ids: list[int] = []
    started = time.perf_counter()
    first: float | None = None
    stats: DecodeStats | None = None
    async for chunk in engine.generate(request):
        if chunk.finish_reason == "error":
            raise DecodeFailedError(f"{request.method} on {request.request_id}: {chunk.error}")
        if first is None and chunk.token_ids:
            first = time.perf_counter() - started
        if on_chunk is not None:
            on_chunk(chunk)
        text.append(chunk.text)
        token_ids.extend(chunk.token_ids)
        stats = chunk.stats or stats
    seconds = time.perf_counter() - started
    if stats is None:
        place = f"{request.method} on {request.request_id}"
        raise DecodeFailedError(f"{place}: the answer ended without statistics")
    return Answer("".join(text), tuple(token_ids), seconds, first or seconds, stats)


@dataclass(frozen=True)
class EncodedPrompt:
    """A prompt with its token ids in the family's chat layout, and those of its predicted answer,
    if it is sent with one."""

    prompt: Prompt
    token_ids: tuple[int, ...]
    predicted: tuple[int, ...] = ()


def encode(
    bundle: Bundle, prompts: Sequence[Prompt], longest: int, *, predict: bool = False
) -> tuple[list[EncodedPrompt], int]:
    """Tokenize prompts in the family's chat layout and leave out those that are too long.

    longest: tokens of a prompt. predict: whether the prompts' responses are predictions of their
    answers. Returns the encoded prompts and the number left out. Raises
    InputError if none is left.
    """
    quiet_transformers()
    tokenizer = bundle.tokenizer()
    encoded = [
        EncodedPrompt(
            p,
            tuple(encode_chat(tokenizer, p.messages, add_generation_prompt=True)),
            tuple(encode_text(tokenizer, p.response)) if predict and p.response else (),
        )
        for p in prompts
    ]
    kept = [e for e in encoded if len(e.token_ids) <= longest]
    if not kept:
        raise InputError(f"all {len(encoded)} prompts are longer than {longest} tokens")
    return kept, len(encoded) - len(kept)
