"""Failover: methods are tried in order until one has answered the prompt."""

import logging
import uuid
from collections.abc import Callable
from contextlib import aclosing

from deployments.errors import (
    ApiError,
    broken_off,
    given_up,
    line_full,
    request_fault,
    unavailable,
)
from deployments.request.calls import Calls, Chunks, Terms
from deployments.request.circuits import Circuits
from deployments.request.deadline import DeadlineError, missed
from deployments.request.prompt import Prompt
from schemas import Decision, DecodeRequest, DecodeStats
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

logger = logging.getLogger(__name__)

MOST_FAILURES = 2
"""A request that failed so many times is given up: it may be what kills replicas, and must not
reach them all."""


class Attempts:
    """Try the methods of a decision for one answer.

    If only one method may answer, it is tried once more when it fails. The second attempt
    avoids the replica of the first, unless no other one can answer.
    """

    def __init__(
        self,
        calls: Calls,
        circuits: Circuits,
        decision: Decision,
        prompt: Prompt,
        deadline: float | None,
        cut: Callable[[DecodeStats], None],
    ) -> None:
        """cut: takes the statistics of each attempt that does not end its answer."""
        others = [method for method in decision.ranked if method != decision.method]
        self._line = [decision.method, *(others or [decision.method])]
        self._calls, self._circuits = calls, circuits
        self._prompt, self._terms = prompt, Terms(deadline, cut)
        self.request_id = uuid.uuid4().hex
        self.method = decision.method
        """The method that was tried last."""
        self.failed_over = False
        """Whether another method was tried before."""
        self.earlier_tokens = 0
        """Tokens of the answer that other methods emitted."""
        self.token_ids: list[int] = []
        """The answer so far."""

    async def chunks(self) -> Chunks:
        """Yield the whole answer. If a method fails, the next one continues after the tokens
        already sent.

        Raises ApiError. Before the first chunk: 400 if the engine refuses the prompt, 429 if every
        waiting line is full, 503 if no replica answers, 500 if it failed twice. Later: 500 if no
        method can continue. At any time: 400 if the request itself stops the answer, 504 if the
        deadline passes.
        """
        began = busy = False
        failures: list[Exception] = []
        for attempt, method in enumerate(self._line):
            if not self._circuits.admits(method):
                continue
            self.method, self.failed_over = method, attempt > 0
            self.earlier_tokens = len(self.token_ids)
            stream = self._calls.stream(self._request(method), self._prompt.whole, self._terms)
            try:
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        began = True
                        self.token_ids += chunk.token_ids
                        yield chunk
                return
            except DeadlineError as error:
                raise missed(started=began) from error
            except EngineRefusedError as error:
                if not began:
                    raise ApiError(400, str(error), code="invalid_request") from error
            except RequestFaultError as error:
                raise request_fault(str(error)) from error
            except EngineBusyError:
                busy = True
            except Exception as error:  # whatever the failure, another method may answer
                logger.warning("%s failed: %s", method, error)
                failures.append(error)
                if len(failures) == MOST_FAILURES or not self._remaining:
                    break
        cause = failures[-1] if failures else None
        if began:
            raise broken_off(self.method) from cause
        if len(failures) == MOST_FAILURES:
            raise given_up(MOST_FAILURES) from cause
        raise line_full() if busy else unavailable("no replica could answer")

    @property
    def _remaining(self) -> int:
        return self._prompt.sampling.max_tokens - len(self.token_ids)

    def _request(self, method: str) -> DecodeRequest:
        return DecodeRequest(
            request_id=self.request_id,
            method=method,
            prompt_token_ids=self._prompt.token_ids,
            answered_token_ids=tuple(self.token_ids),
            predicted_token_ids=self._prompt.predicted_token_ids,
            sampling=self._prompt.sampling,
            expected_tokens=self._prompt.expected_tokens,
            open_ended=self._prompt.open_ended,
            max_draft_tokens=self._prompt.max_draft_tokens,
            scope=self._prompt.scope,
            kept=self._prompt.kept,
            adapter=self._prompt.adapter,
        )
