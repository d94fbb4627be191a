"""The requests of `bench serve`, and what they say of each arm."""

import asyncio
import os
import random
import statistics
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import typer
from numpy.typing import NDArray

from ops.bench.stats import Run, ratio_of_means
from ops.common.boundary import InputError
from ops.common.chat_client import Reply, RequestFailedError, model_names, stream_chat
from ops.common.decoding import POLLING_SECONDS
from ops.common.prompts import Prompt
from workers.http_clients import async_client
from workers.methods import METHODS

ROUNDS = 12
"""Turns of each arm, if it answers several prompts in one."""
READY_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
WARM_UP = Prompt(
    "warm-up", "warm-up", ({"role": "user", "content": "Count from one to twenty in words."},)
)
"""None of the prompts that are measured: look-ups have not seen those yet."""
ROUTED = "routed"
OF_THE_SERVICE = ("tokens_per_s", "requests_per_s", "ttft_ms_p50", "errors", "reasons")
OBJECTIVES = ("ttft", "tpot", "e2el")


@dataclass(frozen=True)
class Arm:
    """What answers the prompts.

    method: the method that it is pinned to. ours: whether the server is this project's service,
    where `cache_salt` keeps an arm from the past responses and cached prefixes of others. key: the
    server's API key.
    """

    name: str
    url: str
    model: str
    method: str | None
    ours: bool
    key: str | None = field(default=None, repr=False)

    @property
    def polls(self) -> bool:
        """Whether its processes use a core for POLLING_SECONDS after a response, as vLLM's do."""
        spec = METHODS.get(self.method or "")
        return not self.ours or (spec is not None and spec.engine == "vllm")


@dataclass(frozen=True)
class Plan:
    """What every arm is asked.

    requests: prompts, each with the number of times that it was asked before. rate: requests per
    second; None sends a request when one of `concurrency` answers has ended.
    """

    requests: Sequence[tuple[Prompt, int]]
    turns: int
    parameters: Mapping[str, Any]
    rate: float | None
    concurrency: int | None
    seed: int

    def rounds(self, arms: int) -> list[Sequence[tuple[Prompt, int]]]:
        """Split the requests into those that one arm answers before the next one's turn."""
        count = len(self.requests)
        one_by_one = self.rate is None and self.concurrency == 1
        size = max(self.concurrency or 1, -(-count // ROUNDS))
        size = count if arms == 1 else 1 if one_by_one else size
        return [self.requests[start : start + size] for start in range(0, count, size)]


@dataclass(frozen=True)
class Answer:
    """A request and its response. Its seconds run from the moment when the request was due.

    repeat: how often the prompt was asked before. late: seconds from then to the sending.
    """

    prompt: Prompt
    repeat: int
    turn: int
    late: float
    reply: Reply
    error: str | None = None

    @property
    def seconds(self) -> float:
        return self.late + self.reply.seconds

    @property
    def ttft(self) -> float | None:
        first = self.reply.first_text_seconds
        return None if first is None else self.late + first

    @property
    def tpot(self) -> float | None:
        """Seconds after the first text over the tokens but one."""
        first, tokens = self.reply.first_text_seconds, self.reply.output_tokens
        return None if first is None or tokens < 2 else (self.reply.seconds - first) / (tokens - 1)

    def meets(self, limits: Mapping[str, float]) -> bool:
        """Return whether the response came within all limits in milliseconds."""
        if self.error is not None:
            return False
        took = {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.seconds}
        return all((took[name] or 0.0) * 1e3 <= limit for name, limit in limits.items())


@dataclass
class Served:
    """The responses of an arm and the wall-clock seconds of its turns."""

    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0


def requests_of(prompts: Sequence[Prompt], count: int) -> list[tuple[Prompt, int]]:
    """Return `count` requests: the prompts, from the first one again after the last."""
    return [(prompts[i % len(prompts)], i // len(prompts)) for i in range(count)]


def objectives(text: str | None) -> dict[str, float]:
    """Read objectives such as `ttft:500,tpot:50` in milliseconds. Raises InputError."""
    found = {}
    for part in filter(None, (text or "").replace(",", " ").split()):
        name, _, value = part.partition(":")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = -1.0
        if name not in OBJECTIVES or not 0.0 < found[name] < float("inf"):
            raise InputError(
                f"--goodput: {part!r} is no KEY:MILLISECONDS with a key of {', '.join(OBJECTIVES)}"
            )
    return found


def poisson(count: int, seed: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Return arrival times [count] with a mean rate of one per second; the first is 0."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: NDArray[np.float64] = np.cumsum(gaps) - gaps[0]
    return arrivals


async def arms_at(url: str, names: Sequence[str], other_key: str | None = None) -> list[Arm]:
    """Find the arms: the service at `url`, its methods, and other servers by their addresses.

    other_key: environment variable with the other servers' key. OPENAI_API_KEY goes to `url` alone,
    because a server that it is not meant for could use it. Raises InputError if a server does not
    answer, a method is not served or the variable is not set.
    """
    if other_key is not None and other_key not in os.environ:
        raise InputError(f"--other-key: the environment has no variable {other_key}")
    found = []
    for name in names:
        other = name.startswith(("http://", "https://"))
        address, variable = (name, other_key) if other else (url, "OPENAI_API_KEY")
        key = os.environ.get(variable) if variable else None
        async with _client(address, key) as client:
            model, *more = await model_names(client)
        pinned = f"{model}:{name}"
        routed = other or name == ROUTED
        if not routed and pinned not in more:
            served = [one.removeprefix(f"{model}:") for one in more if one.startswith(f"{model}:")]
            raise InputError(
                f"--arms: {name} is not served; available methods: {', '.join(served)}"
            )
        ours = not other and any(one.startswith(f"{model}:") for one in more)
        found.append(
            Arm(name, address, model if routed else pinned, None if routed else name, ours, key)
        )
    return found


async def measure(
    arms: Sequence[Arm], plan: Plan, advance: Callable[[], None]
) -> dict[Arm, Served]:
    """Let the arms answer the same requests in turns; another order begins each round.

    Raises InputError if an arm cannot answer.
    """
    served = {arm: Served() for arm in arms}
    order, run = random.Random(plan.seed), uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        clients = {arm: await stack.enter_async_context(_client(arm.url, arm.key)) for arm in arms}
        for arm in arms:
            await _warm_up(clients[arm], arm, plan)
        rest = POLLING_SECONDS if len(arms) > 1 and any(arm.polls for arm in arms) else 0.0
        for number, requests in enumerate(plan.rounds(len(arms))):
            due = None
            if plan.rate is not None:
                due = poisson(len(requests), (plan.seed, number)) / plan.rate
            for arm in order.sample(arms, len(arms)):
                await asyncio.sleep(rest)
                talks = _Conversations(clients[arm], arm, plan, run)
                started = time.perf_counter()
                served[arm].answers += await talks.all(requests, due, advance)
                served[arm].seconds += time.perf_counter() - started
    for arm, one in served.items():
        if all(answer.error for answer in one.answers):
            raise InputError(f"--arms: {arm.name} answered no request: {one.answers[0].error}")
    return served


def _client(url: str, key: str | None) -> httpx.AsyncClient:
    """Return a client that opens as many connections as there are requests."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return async_client(url, timeout=PATIENCE_SECONDS, limits=limits, headers=headers)


async def _warm_up(client: httpx.AsyncClient, arm: Arm, plan: Plan) -> None:
    """Ask until the arm's method answers: while it starts a replica, another method does."""
    deadline = time.monotonic() + READY_SECONDS
    talks = _Conversations(client, arm, plan, uuid.uuid4().hex)
    while True:
        answer = await talks.ask(WARM_UP, 0, 0, list(WARM_UP.messages), 0.0)
        if answer.error is not None:
            raise InputError(f"--arms: {arm.name} does not answer: {answer.error}")
        if arm.method in (None, answer.reply.headers.get("x-specadapt-method")):
            return
        if time.monotonic() > deadline:
            raise InputError(f"--arms: no replica of {arm.name} answers")
        await asyncio.sleep(0.2)


class _Conversations:
    """Conversations with one arm."""

    def __init__(self, client: httpx.AsyncClient, arm: Arm, plan: Plan, run: str) -> None:
        self._client, self._arm, self._plan, self._run = client, arm, plan, run

    async def all(
        self,
        requests: Sequence[tuple[Prompt, int]],
        due: NDArray[np.float64] | None,
        advance: Callable[[], None],
    ) -> list[Answer]:
        """Ask all prompts at once, each when it is due (seconds from now [n]) and a slot is free.

        Without `due`, a request is due when it gets a slot.
        """
        loop, bound = asyncio.get_running_loop(), self._plan.concurrency
        slots = nullcontext() if bound is None else asyncio.Semaphore(bound)
        began = loop.time()

        async def one(index: int) -> list[Answer]:
            if due is not None:
                await asyncio.sleep(max(0.0, began + float(due[index]) - loop.time()))
            async with slots:
                late = 0.0 if due is None else loop.time() - began - float(due[index])
                answers = await self._converse(*requests[index], late)
            advance()
            return answers

        found = await asyncio.gather(*map(one, range(len(requests))))
        return [answer for answers in found for answer in answers]

    async def _converse(self, prompt: Prompt, repeat: int, late: float) -> list[Answer]:
        """Ask a prompt's later turns, or it again, after each response; a failed request ends the
        conversation."""
        messages, answers = list(prompt.messages), list[Answer]()
        for turn in range(self._plan.turns):
            answer = await self.ask(prompt, repeat, turn, messages, late if turn == 0 else 0.0)
            answers.append(answer)
            if answer.error is not None:
                typer.echo(f"{self._arm.name}: {prompt.id}: {answer.error}", err=True)
                break
            said = {"role": "assistant", "content": answer.reply.text}
            messages += [said, *(prompt.later[turn : turn + 1] or prompt.messages[-1:])]
        return answers

    async def ask(
        self, prompt: Prompt, repeat: int, turn: int, messages: list[dict[str, str]], late: float
    ) -> Answer:
        """Return one streamed response."""
        reply, error = Reply(), None
        parameters = {"model": self._arm.model, **self._plan.parameters}
        if self._arm.ours:
            parameters["cache_salt"] = f"{self._run} {self._arm.name} {repeat}"
        try:
            async for _ in stream_chat(self._client, messages, reply, **parameters):
                pass
        except (RequestFailedError, httpx.HTTPError) as failure:
            error = str(failure) or type(failure).__name__
        return Answer(prompt, repeat, turn, late, reply, error)


def compared(
    served: Mapping[Arm, Served], plan: Plan, baseline: str | None, limits: Mapping[str, float]
) -> dict[str, Any]:
    """Return the figures of every arm with their ratios over the baseline, and those of `routed`
    (without it: of the first arm) once more at the top."""
    arms = {arm.name: figures_of(one, plan.turns, limits) for arm, one in served.items()}
    others = [name for name in arms if name != ROUTED] or [*arms]
    best = max(others, key=lambda name: arms[name]["tokens_per_s"])
    answers = {arm.name: one.answers for arm, one in served.items()}
    for name, ratio in ratios(answers, baseline or best, plan).items():
        arms[name] |= ratio
    over_best: dict[str, Any] = {}
    if ROUTED in arms and len(arms) > 1:
        over_best = ratios(answers, best, plan)[ROUTED]
    first = arms.get(ROUTED) or next(iter(arms.values()))
    return {
        **{name: first[name] for name in OF_THE_SERVICE},
        "routed_over_best_single": over_best.get("over_baseline"),
        "routed_over_best_single_ci95": over_best.get("over_baseline_ci95"),
        "arms": arms,
        "baseline": baseline or best,
        "same_text": same_text([*answers.values()])
        if plan.parameters["temperature"] == 0
        else None,
    }


def figures_of(served: Served, turns: int, limits: Mapping[str, float]) -> dict[str, Any]:
    """Return an arm's figures, as docs/measuring.md defines them."""
    done = [answer for answer in served.answers if answer.error is None]
    errors = Counter((answer.error or "").partition(":")[0] for answer in served.answers)
    del errors[""]
    good = sum(answer.meets(limits) for answer in served.answers)
    return {
        "requests": len(served.answers),
        "errors": dict(errors),
        "tokens_per_s": sum(answer.reply.output_tokens for answer in done) / served.seconds,
        "requests_per_s": len(done) / served.seconds,
        "goodput_per_s": good / served.seconds if limits else None,
        **_milliseconds("ttft_ms", [answer.ttft for answer in done]),
        **_milliseconds("tpot_ms", [answer.tpot for answer in done]),
        **_milliseconds("e2el_ms", [answer.seconds for answer in done]),
        "methods": _said(done, "method"),
        "reasons": _said(done, "reason"),
        "by_turn": [_turn(done, turn) for turn in range(turns)],
    }


def _milliseconds(name: str, seconds: Sequence[float | None]) -> dict[str, float | None]:
    known = [one * 1e3 for one in seconds if one is not None]
    keys = [f"{name}_{what}" for what in ("mean", "p50", "p95", "p99")]
    if not known:
        return dict.fromkeys(keys)
    figures = statistics.fmean(known), *map(float, np.quantile(known, (0.5, 0.95, 0.99)))
    return dict(zip(keys, figures, strict=True))


def _said(answers: Sequence[Answer], header: str) -> dict[str, int]:
    """Count what the service says of its responses; other servers say nothing."""
    said = (answer.reply.headers.get(f"x-specadapt-{header}") for answer in answers)
    return dict(Counter(one for one in said if one is not None).most_common())


def _turn(answers: Sequence[Answer], turn: int) -> dict[str, Any]:
    """Return a turn's figures. cached: share of the prompts' tokens found in prefix caches.
    prefix_cached: the same of the tokens of the turn before, prompt and response."""
    own = [answer for answer in answers if answer.turn == turn]
    usages = [answer.reply.usage for answer in own]
    prompt = sum(usage.get("prompt_tokens", 0) for usage in usages)
    details = [usage.get("prompt_tokens_details") or {} for usage in usages]
    cached = sum(one.get("cached_tokens") or 0 for one in details)
    seconds = sum(answer.seconds for answer in own)
    asked = {(answer.prompt.id, answer.repeat) for answer in own}  # whose conversation went on
    before = sum(
        answer.reply.usage.get("total_tokens", 0)
        for answer in answers
        if answer.turn == turn - 1 and (answer.prompt.id, answer.repeat) in asked
    )
    return {
        "ttft_ms_p50": _milliseconds("ttft_ms", [answer.ttft for answer in own])["ttft_ms_p50"],
        "tokens_per_s": sum(one.reply.output_tokens for one in own) / seconds if own else None,
        "prompt_tokens": prompt / len(own) if own else None,
        "cached": cached / prompt if prompt else None,
        "prefix_cached": cached / before if before else None,
    }


def ratios(
    answers: Mapping[str, Sequence[Answer]], baseline: str, plan: Plan
) -> dict[str, dict[str, Any]]:
    """Return each arm's speed over the baseline's, with a 95% interval.

    Pairs have the same prompt, repeat and turn; the interval is a bootstrap over prompts.
    """
    runs = {name: [_run(answer, plan.turns) for answer in own] for name, own in answers.items()}
    found = {}
    for name, own in runs.items():
        ratio, interval = ratio_of_means(own, runs[baseline], plan.seed)
        found[name] = {"over_baseline": ratio, "over_baseline_ci95": interval}
    return found


def _run(answer: Answer, turns: int) -> Run:
    """Return a response as a benchmark's run. A failed one has no tokens, so it does not count."""
    prompt, tokens = answer.prompt, 0 if answer.error else answer.reply.output_tokens
    repeat = answer.repeat * turns + answer.turn
    return Run(prompt.id, prompt.domain, repeat, tokens, answer.seconds)


def same_text(arms: Sequence[Sequence[Answer]]) -> float | None:
    """Return the share of requests that all arms answered with one text; None without any."""
    texts: dict[tuple[str, int, int], list[str]] = {}
    for answers in arms:
        for answer in answers:
            if answer.error is None:
                key = answer.prompt.id, answer.repeat, answer.turn
                texts.setdefault(key, []).append(answer.reply.text)
    whole = [given for given in texts.values() if len(given) == len(arms)]
    return statistics.fmean(len(set(given)) == 1 for given in whole) if whole else None
