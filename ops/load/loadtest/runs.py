"""The requests of `specadapt loadtest`."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from ops.harness.chat_client import Reply, RequestFailedError, stream_chat
from ops.harness.prompts import Prompt
from ops.load.arrivals import Floats
from ops.load.loadtest.figures import ENGINE, Answered


def asked_of(prompts: Sequence[Prompt], requests: int, seed: int) -> list[Prompt]:
    """So many of the prompts in an order of chance, from the first one again after the last."""
    order = list(prompts)
    random.Random(seed).shuffle(order)
    return [order[index % len(order)] for index in range(requests)]


async def drive(
    server: httpx.AsyncClient,
    prompts: Sequence[Prompt],
    arrivals: Floats,
    parameters: dict[str, Any],
    tick: Callable[[], None],
) -> tuple[list[Answered], float]:
    """Each prompt, asked when its arrival [n] is due whatever became of the others; and the seconds
    until the last answer's end."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def ask(prompt: Prompt, due: float) -> Answered:
        await asyncio.sleep(max(0.0, began + due - loop.time()))
        sent = loop.time() - began
        answer = await _asked(server, prompt, due, sent, parameters)
        tick()
        return answer

    asked = [ask(p, float(due)) for p, due in zip(prompts, arrivals, strict=True)]
    answers = list(await asyncio.gather(*asked))
    return answers, loop.time() - began


async def _asked(
    server: httpx.AsyncClient,
    prompt: Prompt,
    due: float,
    sent: float,
    parameters: dict[str, Any],
) -> Answered:
    reply, pieces = Reply(), 0
    try:
        async for _ in stream_chat(server, prompt.messages, reply, **parameters):
            pieces += 1
    except RequestFailedError as error:
        return Answered(due, sent, error=str(error).partition(":")[0], prompt=prompt.id)
    except httpx.HTTPError as error:
        return Answered(due, sent, error=type(error).__name__, prompt=prompt.id)
    late = sent - due
    # a server that counts no tokens sends one a piece, as far as anybody knows
    tokens = reply.output_tokens or pieces
    first = reply.first_text_seconds
    ttft = None if first is None else late + first
    tpot = (reply.seconds - first) / (tokens - 1) if first is not None and tokens > 1 else None
    seconds = late + reply.seconds
    said = reply.speculative
    engine = {name: said[name] for name in ENGINE if name in said}
    return Answered(due, sent, ttft, tpot, seconds, tokens, prompt=prompt.id, engine=engine)
