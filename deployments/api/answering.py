"""From the prompts of a request to its responses: its caller's limits, its deadline, its
headers."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fastapi import Request

from deployments.api.generation import GenerationRequest
from deployments.errors import ApiError, invalid
from deployments.guard.caller import Caller
from deployments.learning.link import FeedbackLink
from deployments.request.answer import Answerer
from deployments.request.answered import Answer, all_or_none
from deployments.request.prompt import Prompt
from router.constraints import Slo
from schemas import AppConfig, LoadReport
from schemas.keys import Priority

DEADLINE = "x-specadapt-deadline-ms"
FIRST, TOKEN = "x-slo-ttft-ms", "x-slo-tpot-ms"
"""Milliseconds to the first token, and between later ones; llm-d's names."""
LONGEST_MS = 24 * 3600 * 1000
_WHOLE = re.compile(r"\d{1,11}", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)
NO_LEARNING = "x-specadapt-no-learning"
"""A header that keeps a request's prompt, its vector and its response out of learning and out of
past answers, whatever its value."""

SHARES: Mapping[Priority, float] = {"low": 0.25, "normal": 0.75, "high": 1.0}
"""Per priority, the share of all waiting places that may be full before requests are refused. At 1
only the replicas refuse."""


@dataclass(frozen=True)
class Answering:
    """Answer prompts within what the caller and the request's headers allow."""

    answerer: Answerer
    link: FeedbackLink
    config: Callable[[], AppConfig]

    async def answers(
        self, asked: GenerationRequest, prompts: Sequence[Prompt], request: Request
    ) -> list[list[Answer]]:
        """Return each prompt's answers, which have their first chunks. Raises ApiError as
        `Answerer.answers`, and 429 where the caller's limits do not allow them."""
        caller, config = caller_of(request), self.config()
        priority = min(caller.priority, asked.most_urgent, key=SHARES.__getitem__)
        shed(priority, self.link.loads, config.engine.max_waiting)
        allowed = min(
            filter(None, (deadline_of(request.headers), config.http.max_answer_seconds)),
            default=None,
        )
        learns = NO_LEARNING not in request.headers
        teaches, kept = learns and caller.teaches is not False, learns and asked.store is not False
        of_caller = partial(
            replace,
            deadline_seconds=allowed,
            slo=slo_of(request.headers),
            spend=caller.spend,
            found=caller.found,
            teaches=teaches,
            owner=caller.owner if kept and caller.teaches else None,
            kept=kept,
        )
        read = sum(len(prompt.token_ids) for prompt in prompts)
        caller.read(read)
        asking = [
            self.answerer.answers(of_caller(prompt, scope=caller.scope_of(prompt.scope)))
            for prompt in prompts
        ]
        try:
            return await all_or_none(asking, _close)
        except ApiError as error:
            if not error.worked_on:
                caller.unread(read)
            raise


def caller_of(request: Request) -> Caller:
    """Return the request's caller, as the guard found it."""
    caller: Caller | None = getattr(request.state, "caller", None)
    return caller or Caller()


def ignore(request: Request, names: Iterable[str]) -> None:
    """Name what a request has asked for in vain, for a header of its response."""
    state = request.state
    state.ignored = getattr(state, "ignored", frozenset()) | set(names)


def ignore_capped(
    request: Request, asked: GenerationRequest, prompts: Sequence[Prompt], field: str
) -> None:
    """Name the maximum of tokens where the context has less left. field: its name in the body."""
    wanted = asked.wanted_tokens
    if wanted is not None and any(0 < one.sampling.max_tokens < wanted for one in prompts):
        ignore(request, [field])


def shed(priority: Priority, loads: Sequence[LoadReport], max_waiting: int) -> None:
    """Raise ApiError 503 if a request of this priority has to make room: low priorities are refused
    before the waiting lines are full."""
    places = max_waiting * sum(load.healthy for load in loads)
    waiting = sum(load.waiting for load in loads if load.healthy)
    if waiting and waiting >= SHARES[priority] * places and SHARES[priority] < 1.0:
        raise ApiError(
            503,
            f"{waiting} requests wait; priority {priority} is refused first: try again later",
            code="shed",
        )


def told_of(answer: Answer) -> dict[str, str | int]:
    """Return who answers and why."""
    told: dict[str, str | int] = {
        "method": answer.method,
        "cluster": answer.decision.cluster,
        "reason": answer.reason,
    }
    if answer.routed.degraded:
        told["degraded"] = ", ".join(answer.routed.degraded)
    return told


def headers_of(answer: Answer) -> dict[str, str]:
    """Return the headers that say who answers and why."""
    return {f"x-specadapt-{name}": str(value) for name, value in told_of(answer).items()}


def deadline_of(headers: Mapping[str, str]) -> float | None:
    """Return the deadline of a request in seconds, None without one.

    Raises ApiError 400 unless it is a whole number of milliseconds, at most a day.
    """
    return _seconds(headers, DEADLINE, _WHOLE, f"whole milliseconds from 1 to {LONGEST_MS}")


def slo_of(headers: Mapping[str, str]) -> Slo:
    """Return the objectives of a request. Raises ApiError 400 naming a header that is no number of
    milliseconds above 0, at most a day."""
    form = f"milliseconds above 0, up to {LONGEST_MS}"
    return Slo(*(_seconds(headers, name, _NUMBER, form) for name in (FIRST, TOKEN)))


def _seconds(
    headers: Mapping[str, str], name: str, number: re.Pattern[str], form: str
) -> float | None:
    given = headers.get(name)
    if given is None:
        return None
    text = given.strip()
    if not (number.fullmatch(text) and 0.0 < float(text) <= LONGEST_MS):
        raise invalid(name, f"give {form}, not {text[:40]!r}")
    return float(text) / 1e3


async def _close(answers: Sequence[Answer]) -> None:
    for answer in answers:
        await answer.close()
