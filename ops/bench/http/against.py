"""`bench http --against`: our service and other servers, asked in turns."""

import asyncio
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from ops.bench.http.other_server import other_server
from ops.bench.http.our_service import our_service
from ops.bench.http.report import Turn, against, processor_ms, summarise
from ops.bench.http.runs import Asked, Questions, Tick
from ops.bench.http.vllm_command import completed, environment
from ops.harness.chat_client import model_name
from ops.harness.engines import POLLING_SECONDS
from ops.harness.output import progress
from ops.harness.processor_time import processor_seconds
from ops.harness.prompts import Prompt
from ops.harness.running_service import started_service
from ops.harness.settings import Setup
from ops.harness.vllm_cli import startable
from schemas import AppConfig
from workers.http_clients import async_client

ROUNDS_AT_MOST = 12
SAME_PRIORITY = {"RAY_worker_niceness": "0"}
"""Ray would start its processes at niceness 15, behind the client's and the other servers'."""


def compare(
    settings: AppConfig, setup: Setup, commands: Sequence[Sequence[str]], asked: Asked
) -> dict[str, Any]:
    """Start our service and other servers and measure them in turns.

    setup: the engine and the methods of our service; with one method it serves nothing else, with
    several it serves as configured. commands: each starts another server. Raises InputError if one
    of the servers does not become ready.
    """
    words = [completed(command, setup) for command in commands]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specadapt-lone-")))
        served = our_service(settings, setup, folder)
        urls = [stack.enter_context(started_service(served, environment=SAME_PRIORITY))]
        variables = environment(setup)
        for command in words:
            urls.append(stack.enter_context(other_server(startable(command), variables)))
        ours, *others = asyncio.run(_take_turns(urls, asked))
    replies = [reply for turn in ours for reply in turn.replies]
    seconds = sum(turn.seconds for turn in ours)
    figures = summarise([reply for reply in replies if reply is not None], seconds)
    figures["errors"] = replies.count(None)
    figures["processor_ms"] = processor_ms(ours)
    figures["rounds"] = len(ours)
    figures["against"] = [
        {"command": shlex.join([Path(command[0]).name, *command[1:]])}
        | against(ours, theirs, asked.parameters["seed"])
        for command, theirs in zip(words, others, strict=True)
    ]
    return figures


async def _take_turns(urls: Sequence[str], asked: Asked) -> list[list[Turn]]:
    """In each round all servers answer the same prompts, one server after the other; another one
    begins each round."""
    turns: list[list[Turn]] = [[] for _ in urls]
    size = max(asked.concurrency, -(-len(asked.prompts) // ROUNDS_AT_MOST))
    rounds = [asked.prompts[start : start + size] for start in range(0, len(asked.prompts), size)]
    with progress() as bar:
        task = bar.add_task("answers of all", total=len(urls) * (len(asked.prompts) + size))

        def tick() -> None:
            bar.advance(task)

        for url in urls:  # first calls allocate
            await _turn(url, rounds[0], asked, tick)
        for number, prompts in enumerate(rounds):
            for place in range(len(urls)):
                server = (number + place) % len(urls)
                turns[server].append(await _turn(urls[server], prompts, asked, tick))
    return turns


async def _turn(url: str, prompts: Sequence[Prompt], asked: Asked, tick: Tick) -> Turn:
    # The others' processes still poll their queues, on cores that this one needs.
    await asyncio.sleep(POLLING_SECONDS)
    limits = httpx.Limits(max_connections=asked.concurrency)
    async with async_client(url, timeout=None, limits=limits) as client:
        parameters = {"model": await model_name(client), **asked.parameters}
        questions, before = Questions(client, prompts, parameters), processor_seconds(url)
        replies, seconds = await questions.all(asked.concurrency, tick)
    spent = processor_seconds(url)
    spent.subtract(before)
    return Turn(replies, seconds, spent)
