"""`bench http --against`: our service with one method and another server, asked in turns."""

import asyncio
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from ops.bench.http.lone_service import lone_service
from ops.bench.http.other_server import other_server
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

ROUNDS_AT_MOST = 12
OURS, THEIRS = "ours", "theirs"
SAME_PRIORITY = {"RAY_worker_niceness": "0"}
"""Ray would start its processes at niceness 15, behind the client's and the other server's."""


def compare(
    settings: AppConfig, setup: Setup, command: Sequence[str], asked: Asked
) -> dict[str, Any]:
    """Start both servers and measure them in turns.

    setup: the engine and the one method of our service. command: starts the other server. Raises
    InputError if one of them does not become ready.
    """
    words = completed(command, setup)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specadapt-lone-")))
        alone = lone_service(settings, setup, folder)
        ours = stack.enter_context(started_service(alone, environment=SAME_PRIORITY))
        theirs = stack.enter_context(other_server(startable(words), environment(setup)))
        turns = asyncio.run(_take_turns({OURS: ours, THEIRS: theirs}, asked))
    replies = [reply for turn in turns[OURS] for reply in turn.replies]
    seconds = sum(turn.seconds for turn in turns[OURS])
    figures = summarise([reply for reply in replies if reply is not None], seconds)
    figures["errors"] = replies.count(None)
    figures["processor_ms"] = processor_ms(turns[OURS])
    compared = against(turns[OURS], turns[THEIRS], asked.parameters["seed"])
    compared["against"] = {
        "command": shlex.join([Path(words[0]).name, *words[1:]]),
        **compared["against"],
    }
    return figures | compared


async def _take_turns(urls: Mapping[str, str], asked: Asked) -> dict[str, list[Turn]]:
    """Each round both answer the same prompts, one after the other, each first in every second."""
    turns: dict[str, list[Turn]] = {name: [] for name in urls}
    size = max(asked.concurrency, -(-len(asked.prompts) // ROUNDS_AT_MOST))
    rounds = [asked.prompts[start : start + size] for start in range(0, len(asked.prompts), size)]
    with progress() as bar:
        task = bar.add_task("answers of both", total=2 * (len(asked.prompts) + size))

        def tick() -> None:
            bar.advance(task)

        for name in urls:  # first calls allocate
            await _turn(urls[name], rounds[0], asked, tick)
        for number, prompts in enumerate(rounds):
            for name in sorted(urls, reverse=bool(number % 2)):
                turns[name].append(await _turn(urls[name], prompts, asked, tick))
    return turns


async def _turn(url: str, prompts: Sequence[Prompt], asked: Asked, tick: Tick) -> Turn:
    # The other one's processes still poll their queues, on cores that this one needs.
    await asyncio.sleep(POLLING_SECONDS)
    limits = httpx.Limits(max_connections=asked.concurrency)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        parameters = {"model": await model_name(client), **asked.parameters}
        questions, before = Questions(client, prompts, parameters), processor_seconds(url)
        replies, seconds = await questions.all(asked.concurrency, tick)
    spent = processor_seconds(url)
    spent.subtract(before)
    return Turn(replies, seconds, spent)
