"""The Engine protocol over a vLLM server that runs already."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing
from typing import Any

import httpx
from tokenizers import Tokenizer

from schemas import DecodeChunk, DecodeRequest, EngineConfig, FinishReason, LoadReport, MethodSpec
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.engine import EngineBusyError, EngineRefusedError, check_method
from workers.engine_load import EngineLoad, ScheduledAnswer, load_report
from workers.grammar.specification import GrammarError
from workers.http_clients import async_client
from workers.methods import refused_draft, refused_field
from workers.openai_engine.server import TIMEOUT_SECONDS, Event, Server, ServerError, body, events

log = logging.getLogger(__name__)


class OpenAIEngine:
    """Forward requests to the server that `engine.openai` names first; it decodes.

    The server needs vLLM's completions: with token ids in prompts and streams. Requests come from
    one event loop.
    """

    def __init__(
        self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, replica: str
    ) -> None:
        """Connect to the server. Raises ValueError naming the setting that does not fit it. A
        server that does not answer makes the engine unhealthy until it does."""
        assert config.openai is not None
        self._specs = {spec.name: spec for spec in methods}
        self._config, self._replica = config, replica
        self._tokenizer, self._eos = bundle.backend_tokenizer(), end_tokens(bundle)
        self._server = Server(methods, config, config.openai.model or bundle.name)
        self._client = async_client(
            self._server.url,
            headers=self._server.headers,
            timeout=httpx.Timeout(config.stall_seconds, connect=TIMEOUT_SECONDS, pool=None),
            # A connection that is used again may just be closed by the server.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        return list(self._specs.values())

    async def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream a response; see workers.engine.Engine. Closing the iterator closes the connection,
        which ends the request on the server."""
        self._check(request)
        server, load = self._server, self._server.load
        drafts = self._specs[request.method].drafter != "none"
        answer = ServerAnswer(request, self._tokenizer, self._eos, load, drafts)
        load.begin(answer)
        try:
            asked = self._client.stream(
                "POST", f"{server.url}/completions", json=body(request, server.model, self._eos)
            )
            async with asked as response, aclosing(events(response)) as stream:
                async for event in stream:
                    chunk = answer.step(event)
                    if chunk is not None:
                        yield chunk
                    if answer.cut:
                        break
            yield answer.end()
        except GrammarError as error:
            raise EngineRefusedError(f"grammar: {error}") from error
        except (httpx.HTTPError, ServerError, EngineRefusedError, EngineBusyError) as error:
            if isinstance(error, EngineRefusedError | EngineBusyError) and not answer.output_tokens:
                raise
            # a failure after the last token costs the counts only
            yield self._failed(answer, error) if answer.last is None else answer.end()
        finally:
            load.end(answer)

    def load(self) -> LoadReport:
        """Return the present load. Safe in any thread; never waits for the server."""
        server = self._server
        report = load_report(self._replica, self._specs, server.load, healthy=server.healthy)
        running, waiting = max(report.running, server.running), max(report.waiting, server.waiting)
        return report.model_copy(update={"running": running, "waiting": waiting})

    def close(self) -> None:
        """End the polls of the server. May be called twice."""
        self._server.close()

    def _failed(self, answer: ServerAnswer, error: Exception) -> DecodeChunk:
        why = str(error) or f"the connection broke ({type(error).__name__})"
        if isinstance(error, httpx.ReadTimeout):
            why = f"it sent nothing for {self._config.stall_seconds:g} s (engine.stall_seconds)"
        log.error("%s failed on %s: %s", self._server.url, answer.request.request_id, why)
        return answer.failed(f"{self._server.url}: {why}")

    def _check(self, request: DecodeRequest) -> None:
        check_method(request, self._specs)
        given, nothing = request.sampling, (None, ())
        asked = {name: getattr(given, name) for name in ("logprobs", "prompt_logprobs")}
        asked["answered_token_ids"] = request.answered_token_ids
        field = next((name for name, value in asked.items() if value not in nothing), None)
        field = field or refused_field(self.methods, given)
        field = field or refused_draft(self._specs[request.method], request.max_draft_tokens)
        if field is not None:
            raise EngineRefusedError(
                f"{field}: engine.openai's servers do not take it; leave it out"
            )
        self._server.load.check_room(self._config, f" at {self._server.url}")


FINISH: dict[str | None, FinishReason | None] = {None: None, "stop": "stop", "length": "length"}


class ServerAnswer(ScheduledAnswer):
    """Build a response from the events of its stream.

    drafts: whether the request's method has a drafter.
    """

    def __init__(
        self,
        request: DecodeRequest,
        tokenizer: Tokenizer,
        eos: Collection[int],
        load: EngineLoad,
        drafts: bool,
    ) -> None:
        super().__init__(request, tokenizer, eos, load)
        self._drafts = drafts
        self.last: DecodeChunk | None = None
        """The last chunk, once it has come. The server sends the response's counts after it."""
        self.cut = False
        """Whether the text has ended before the server's response."""
        self._told = Event()

    def step(self, event: Event) -> DecodeChunk | None:
        """Return an event's tokens; None if it has none, or for the last ones, which `end` returns.

        Raises ServerError for an end that is neither a stop nor the length.
        """
        if not event.choices:
            self._told, self._cached = event, event.cached or 0
            self._queued = (event.queue_ms or 0.0) / 1000.0
        if not event.choices or self.last is not None:
            return None
        [told] = event.choices
        if told.finish_reason not in FINISH:
            raise ServerError(f"the answer ended with finish_reason {told.finish_reason!r}")
        if told.token_ids:
            self._stepped()
        kept, text = self._text.push(told.token_ids)
        self.tokens += told.token_ids[:kept]
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
            raise ServerError(f"its stream ended after {self.output_tokens} tokens of an answer")
        return self.last.model_copy(update={"stats": self.stats(self.last.finish_reason)})

    def _counts(self, seconds: float) -> dict[str, Any]:
        """Return the server's counts.

        Where it does not count a response's drafts, target_steps is 0, since an event may hold the
        tokens of several steps. The router then learns neither acceptance nor step times.
        """
        accepted, steps = self._told.accepted if self._drafts else 0, 0
        if accepted is not None:
            # Each step emits a token of the target's own, unless an end token came before it.
            steps = max(self._steps, self.output_tokens - accepted)
        return super()._counts(seconds) | {
            "target_steps": steps,
            "drafted_tokens": self._told.drafted or 0,
            "accepted_tokens": self.output_tokens - steps if steps else 0,
        }
