"""The state of one request while a server answers it."""

from __future__ import annotations

import time
from collections import Counter

from schemas import DecodeChunk, DecodeRequest, DecodeStats, FinishReason
from workers.engine_load import EngineLoad
from workers.looping import is_looping
from workers.openai_engine.completions import Event, ServerError
from workers.text import AnswerText

FINISH: dict[str | None, FinishReason | None] = {None: None, "stop": "stop", "length": "length"}


class Answer:
    """Build a request's text and statistics from the events of its stream.

    drafts: whether the request's method has a drafter.
    """

    def __init__(
        self, request: DecodeRequest, text: AnswerText, drafts: bool, load: EngineLoad
    ) -> None:
        self.request, self._text, self._drafts, self._load = request, text, drafts, load
        self.last: DecodeChunk | None = None
        """The last chunk, once it has come. The server sends the answer's counts after it."""
        self.cut = False
        """Whether the text has ended before the server's answer."""
        self._tokens: list[int] = []
        self._events = 0
        self._by_method: Counter[str] = Counter()
        self._counts = Event()
        self._submitted = time.perf_counter()
        self._first = self._latest = self._submitted

    @property
    def output_tokens(self) -> int:
        """Return the tokens emitted so far."""
        return len(self._tokens)

    @property
    def outstanding(self) -> int:
        """Return the tokens that the load still counts for it."""
        return self.request.outstanding(len(self._tokens))

    def step(self, event: Event) -> DecodeChunk | None:
        """Return an event's tokens; None if it has none, or for the last ones, which `end` returns.

        Raises ServerError for an end that is neither a stop nor the length.
        """
        if not event.choices:
            self._counts = event
        if not event.choices or self.last is not None:
            return None
        [told] = event.choices
        if told.finish_reason not in FINISH:
            raise ServerError(f"the answer ended with finish_reason {told.finish_reason!r}")
        if told.token_ids:
            self._count()
        kept, text = self._text.push(told.token_ids)
        self._tokens += told.token_ids[:kept]
        reason = "stop" if self._text.ended else FINISH[told.finish_reason]
        chunk = DecodeChunk(
            request_id=self.request.request_id,
            text=text if reason is None else text + self._text.flush(),
            token_ids=told.token_ids[:kept],
            drafted=tuple(self._drafts and at + 1 < len(told.token_ids) for at in range(kept)),
            finish_reason=reason,
        )
        if reason is None:
            return chunk if told.token_ids else None
        self.last, self.cut = chunk, told.finish_reason is None
        return None

    def end(self) -> DecodeChunk:
        """Return the last chunk, with the statistics. Raises ServerError if it has not come."""
        if self.last is None or self.last.finish_reason is None:
            raise ServerError(f"its stream ended after {len(self._tokens)} tokens of an answer")
        return self.last.model_copy(update={"stats": self._stats(self.last.finish_reason)})

    def failed(self, message: str) -> DecodeChunk:
        """Return the last chunk of an answer that the server failed."""
        stats = self._stats("error")
        return DecodeChunk(
            request_id=stats.request_id, text="", finish_reason="error", error=message, stats=stats
        )

    def _count(self) -> None:
        now = time.perf_counter()
        if self._events:
            self._by_method.update(self._load.decoding())
            self._load.stepped(self.request.method, now - self._latest)
        else:
            self._load.begun(self)
            self._first = now
        self._events += 1
        self._latest = now

    def _stats(self, reason: FinishReason) -> DecodeStats:
        """Return the statistics, in seconds at this end of the connection.

        Where the server does not count an answer's drafts, target_steps is 0, since an event may
        hold the tokens of several steps. The router then learns neither acceptance nor step times.
        """
        request, output, told = self.request, len(self._tokens), self._counts
        accepted, steps, later = told.accepted if self._drafts else 0, 0, max(1, self._events - 1)
        if accepted is not None:
            # Each step emits a token of the target's own, unless an end token came before it.
            steps = max(self._events, output - accepted)
        return DecodeStats(
            request_id=request.request_id,
            method=request.method,
            temperature=request.sampling.temperature,
            prompt_tokens=len(request.prompt_token_ids),
            cached_prompt_tokens=told.cached or 0,
            output_tokens=output,
            context_length=len(request.prompt_token_ids) + output,
            target_steps=steps,
            drafted_tokens=told.drafted or 0,
            accepted_tokens=output - steps if steps else 0,
            queue_seconds=(told.queue_ms or 0.0) / 1000.0,
            first_token_seconds=self._first - self._submitted,
            decode_seconds=self._latest - self._first,
            total_seconds=time.perf_counter() - self._submitted,
            other_seconds=self._latest - self._first,
            mean_batch=max(1.0, self._by_method.total() / later),
            batch_by_method={name: n / later for name, n in self._by_method.items()},
            finish_reason=reason,
            looping=is_looping(self._tokens),
        )
