"""The methods that may answer a prompt, one after the other until one has answered it."""

import logging
import uuid
from contextlib import aclosing

from deployments.errors import (
    ApiError,
    broken_off,
    given_up,
    line_full,
    request_fault,
    unavailable,
)
from deployments.request.calls import Calls, Chunks
from deployments.request.circuits import Circuits
from deployments.request.deadline import DeadlineError, missed
from deployments.request.prompt import Prompt
from schemas import Decision, DecodeRequest
from workers.engine import EngineBusyError, EngineRefusedError, RequestFaultError

logger = logging.getLogger(__name__)

MOST_FAILURES = 2
"""Methods that may fail on a request before it is given up: it may be the request that they died
of, and it shall not reach them all."""


class Attempts:
    """One answer's way through the methods.

    Where only one may answer it is asked once more when it fails: another replica of it, or the one
    that takes its place.
    """

    def __init__(
        self,
        calls: Calls,
        circuits: Circuits,
        decision: Decision,
        prompt: Prompt,
        deadline: float | None,
    ) -> None:
        others = [method for method in decision.ranked if method != decision.method]
        self._line = [decision.method, *(others or [decision.method])]
        self._calls, self._circuits = calls, circuits
        self._prompt, self._deadline = prompt, deadline
        self._said: list[int] = []
        self.request_id = uuid.uuid4().hex
        self.method = decision.method
        """The one that was asked last."""
        self.failed_over = False
        """Whether it is not the first that was."""
        self.earlier_tokens = 0
        """Tokens of the answer that others emitted before."""

    async def chunks(self) -> Chunks:
        """The whole answer. Where a method fails in the middle of it, the next goes on from the
        tokens that are out.

        Raises ApiError: before the first chunk 400 where the engine refuses the prompt, 429 where
        every waiting line is full, 503 where no replica answers, 500 where two methods failed, and
        later 500 where nobody goes on; at any time 400 where the request itself keeps the answer
        from going on, and 504 where the deadline passes.
        """
        began = busy = False
        failures: list[Exception] = []
        for attempt, method in enumerate(self._line):
            if not self._circuits.admits(method):
                continue
            self.method, self.failed_over = method, attempt > 0
            self.earlier_tokens = len(self._said)
            stream = self._calls.stream(self._request(method), self._prompt.whole, self._deadline)
            try:
                async with aclosing(stream) as chunks:
                    async for chunk in chunks:
                        began = True
                        self._said += chunk.token_ids
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
            except Exception as error:  # whatever a replica died of, another may answer
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
        return self._prompt.sampling.max_tokens - len(self._said)

    def _request(self, method: str) -> DecodeRequest:
        return DecodeRequest(
            request_id=self.request_id,
            method=method,
            prompt_token_ids=self._prompt.token_ids,
            answered_token_ids=tuple(self._said),
            sampling=self._prompt.sampling,
            scope=self._prompt.scope,
        )
