"""From the prompts of a request to its answers: its caller's limits, its deadline, its headers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from fastapi import Request

from deployments.api.generation import GenerationRequest
from deployments.errors import ApiError
from deployments.guard.caller import Caller
from deployments.request.answer import Answerer
from deployments.request.answered import Answer
from deployments.request.deadline import HEADER as DEADLINE_HEADER
from deployments.request.deadline import deadline_seconds
from deployments.request.gathering import all_or_none
from deployments.request.objectives import slo_of
from deployments.request.prompt import Prompt
from deployments.request.routing_state import RoutingState
from deployments.request.shedding import lower, shed
from schemas import AppConfig

NO_LEARNING = "x-specadapt-no-learning"
"""A header that keeps a request's prompt, its vector and its answer out of learning and out of past
answers, whatever its value."""


class Answering:
    """Answer prompts within what the caller and the request's headers allow."""

    def __init__(
        self, answerer: Answerer, state: RoutingState, config: Callable[[], AppConfig]
    ) -> None:
        self._answerer = answerer
        self._state = state
        self._config = config

    async def answers(
        self, asked: GenerationRequest, prompts: Sequence[Prompt], request: Request
    ) -> list[list[Answer]]:
        """Return each prompt's answers, which have their first chunks. Raises ApiError as
        `Answerer.answers`, and 429 where the caller's limits do not allow them."""
        caller, config = caller_of(request), self._config()
        priority = lower(caller.priority, asked.most_urgent)
        shed(priority, self._state.loads, config.engine.max_waiting)
        asked_for = deadline_seconds(request.headers.get(DEADLINE_HEADER))
        allowed = min(filter(None, (asked_for, config.http.max_answer_seconds)), default=None)
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
            self._answerer.answers(of_caller(prompt, scope=caller.scope_of(prompt.scope)))
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


def told_of(answer: Answer) -> dict[str, str | int]:
    """Return who answers and why."""
    degraded = {"degraded": ", ".join(answer.degraded)} if answer.degraded else {}
    return {
        "method": answer.method,
        "cluster": answer.decision.cluster,
        "reason": answer.reason,
        **degraded,
    }


def headers_of(answer: Answer) -> dict[str, str]:
    """Return the headers that say who answers and why."""
    return {f"x-specadapt-{name}": str(value) for name, value in told_of(answer).items()}


async def _close(answers: Sequence[Answer]) -> None:
    for answer in answers:
        await answer.close()
