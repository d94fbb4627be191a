"""The runs of `bench routed`: every prompt routed and pinned to each method, one after another."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx

from ops.bench.http.runs import Questions
from ops.bench.routed.figures import ROUTED, Run
from ops.bench.routed.service import Site
from ops.harness.boundary import InputError
from ops.harness.chat_client import Reply, model_name
from ops.harness.prompts import Prompt
from workers.http_clients import async_client

READY_SECONDS = 60.0
WARM_UPS = 3
WARM_UP_TOKENS = 16
WARM_UP = Prompt(
    "warm-up", "warm-up", ({"role": "user", "content": "Count from one to twenty in words."},)
)
"""None of the prompts that are measured: what remembers answers has not seen these yet."""


@dataclass(frozen=True)
class Plan:
    """What is asked."""

    prompts: Sequence[Prompt]
    repeats: int
    max_tokens: int
    temperature: float
    seed: int


@dataclass
class Measured:
    """The results of all repeats, and `advance`, which is called for each request.

    tables: the routing table at the end of each repeat.
    """

    advance: Callable[[], None]
    runs: list[Run] = field(default_factory=list)
    errors: int = 0
    tables: list[dict[str, Any]] = field(default_factory=list)


def measure(site: Site, plan: Plan, advance: Callable[[], None]) -> Measured:
    """Run all repeats and call `advance` for each request.

    Raises InputError if a method has no replica.
    """
    measured = Measured(advance)
    for repeat in range(plan.repeats):
        with site.service() as url:
            asyncio.run(_repeat(url, site, plan, repeat, measured))
    return measured


async def _repeat(url: str, site: Site, plan: Plan, repeat: int, measured: Measured) -> None:
    """Ask every prompt once by every arm, one request at a time, in random order."""
    async with AsyncExitStack() as stack:
        clients = {
            arm: await stack.enter_async_context(_client(url, site.keys.get(arm)))
            for arm in (ROUTED, *site.methods)
        }
        client = clients[ROUTED]
        await _until_ready(client, site.methods)
        arms = await _arms(clients, plan)
        order = random.Random(f"{plan.seed} {repeat}")

        for _ in range(WARM_UPS):
            for questions in arms.values():
                await questions.ask(WARM_UP, max_tokens=WARM_UP_TOKENS)
        for prompt in order.sample(plan.prompts, len(plan.prompts)):
            for arm in order.sample(list(arms), len(arms)):
                await asyncio.sleep(site.rest)
                reply = await arms[arm].ask(prompt)
                if reply is None:
                    measured.errors += 1
                else:
                    measured.runs.append(_run(arm, prompt, repeat, reply))
                measured.advance()
        table = (await client.get("/v1/routing")).raise_for_status().json()
    measured.tables.append({"fit_id": table["fit_id"], "version": table["version"]})


async def _until_ready(client: httpx.AsyncClient, methods: Sequence[str]) -> None:
    """Wait until each of the methods has a replica: without it another would answer."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        health = await client.get("/health")
        missing = set(methods) - set(health.json()["methods"] if health.is_success else ())
        if not missing:
            return
        if time.monotonic() > deadline:
            raise InputError(f"--methods: no replica of {', '.join(sorted(missing))} answers")
        await asyncio.sleep(0.2)


def _client(url: str, key: str | None) -> httpx.AsyncClient:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    limits = httpx.Limits(max_connections=1)
    return async_client(url, timeout=None, limits=limits, headers=headers)


async def _arms(clients: Mapping[str, httpx.AsyncClient], plan: Plan) -> dict[str, Questions]:
    """By arm what asks its requests."""
    model = await model_name(clients[ROUTED])
    sampling = {"max_tokens": plan.max_tokens, "temperature": plan.temperature}
    return {
        arm: Questions(
            client,
            plan.prompts,
            {"model": model if arm == ROUTED else f"{model}:{arm}", **sampling},
        )
        for arm, client in clients.items()
    }


def _run(arm: str, prompt: Prompt, repeat: int, reply: Reply) -> Run:
    return Run(
        arm=arm,
        prompt_id=prompt.id,
        domain=prompt.domain,
        repeat=repeat,
        method=reply.headers["x-specadapt-method"],
        reason=reply.headers["x-specadapt-reason"],
        tokens=reply.output_tokens,
        seconds=reply.seconds,
        first_text_seconds=reply.first_text_seconds,
        target_steps=reply.speculative["target_steps"],
        text=reply.text,
        looping=reply.speculative["looping"],
    )
