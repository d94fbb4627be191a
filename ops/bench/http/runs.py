"""The runs of `bench http`: requests to a service and to the bare hop."""

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import typer

from ops.bench.http.report import Block, Pair, overhead_ms
from ops.harness.chat_client import Reply, RequestFailedError, event_lines, stream_chat, whole_chat
from ops.harness.prompts import Prompt
from ops.harness.running_service import BARE_HOP
from schemas import DecodeRequest, SamplingParams

# Only the first byte is looked at.
PAIR_TOKENS = 8
BLOCKS_AT_MOST = 12

Tick = Callable[[], None]


class Questions:
    """Prompts as requests of one kind to one service."""

    def __init__(
        self, client: httpx.AsyncClient, prompts: Sequence[Prompt], parameters: dict[str, Any]
    ) -> None:
        self._client = client
        self._prompts = prompts
        self._parameters = parameters

    async def all(self, concurrency: int, tick: Tick) -> tuple[list[Reply | None], float]:
        """Return every prompt's streamed answer (None if it failed) and the wall-clock seconds."""
        started = time.perf_counter()
        replies = await self._ask_all(self._prompts, concurrency, True, tick)
        return replies, time.perf_counter() - started

    async def blocks(self, concurrency: int, tick: Tick) -> list[Block]:
        """Runs of the same requests, streamed and whole, taking turns in going first."""
        size = max(concurrency, -(-len(self._prompts) // BLOCKS_AT_MOST))
        blocks = []
        for number, start in enumerate(range(0, len(self._prompts), size)):
            prompts = self._prompts[start : start + size]
            runs = {}
            for streamed in (number % 2 == 0, number % 2 == 1):
                started = time.perf_counter()
                replies = await self._ask_all(prompts, concurrency, streamed, tick)
                tokens = sum(reply.output_tokens for reply in replies if reply is not None)
                runs[streamed] = (tokens, time.perf_counter() - started)
            blocks.append(Block(*runs[True], *runs[False]))
        return [block for block in blocks if block.streamed_tokens and block.whole_tokens]

    async def pairs(
        self, encode: Callable[[Prompt], list[int]], seed: int, tick: Tick
    ) -> list[Pair]:
        """Each prompt once through the ingress and once over the bare hop, one after the other in
        an order of chance. The model's name must pin a method."""
        method = str(self._parameters["model"]).rpartition(":")[2]
        rng, pairs = random.Random(seed), []
        sampling = SamplingParams(
            temperature=self._parameters["temperature"], max_tokens=PAIR_TOKENS
        )
        for prompt in self._prompts:
            request = DecodeRequest(
                request_id=uuid.uuid4().hex,
                method=method,
                prompt_token_ids=tuple(encode(prompt)),
                sampling=sampling,
            )
            found: dict[str, float | None] = {}
            for which in rng.sample(("ingress", "bare"), 2):
                if which == "bare":
                    found[which] = await bare_overhead_ms(self._client, request)
                else:
                    reply = await self.ask(prompt, streamed=True, max_tokens=PAIR_TOKENS)
                    found[which] = overhead_ms(reply) if reply else None
            tick()
            if found["ingress"] is not None and found["bare"] is not None:
                pairs.append(Pair(found["ingress"], found["bare"]))
        return pairs

    async def ask(self, prompt: Prompt, streamed: bool, **changed: Any) -> Reply | None:
        """One answer; a failure is printed and None."""
        reply, parameters = Reply(), self._parameters | changed
        try:
            if streamed:
                async for _ in stream_chat(self._client, prompt.messages, reply, **parameters):
                    pass
            else:
                await whole_chat(self._client, prompt.messages, reply, **parameters)
        except (RequestFailedError, httpx.HTTPError) as error:
            typer.echo(f"{prompt.id}: {error or type(error).__name__}", err=True)
            return None
        return reply

    async def _ask_all(
        self, prompts: Sequence[Prompt], concurrency: int, streamed: bool, tick: Tick
    ) -> list[Reply | None]:
        places = asyncio.Semaphore(concurrency)

        async def ask(prompt: Prompt) -> Reply | None:
            async with places:
                reply = await self.ask(prompt, streamed)
            tick()
            return reply

        return list(await asyncio.gather(*map(ask, prompts)))


async def bare_overhead_ms(client: httpx.AsyncClient, request: DecodeRequest) -> float | None:
    """Time to first byte over the bare hop - the engine's own time to first token."""
    started, first, last = time.perf_counter(), None, ""
    body = request.model_dump_json(exclude_defaults=True)
    async with client.stream("POST", f"/{BARE_HOP}", content=body) as response:
        async for line in event_lines(response):
            first = first or time.perf_counter() - started
            last = line or last
    if first is None or response.status_code != httpx.codes.OK:
        typer.echo(f"bare hop: {response.status_code}", err=True)
        return None
    stats = json.loads(last.removeprefix("data: "))["stats"]
    return first * 1e3 - float(stats["first_token_seconds"]) * 1e3
