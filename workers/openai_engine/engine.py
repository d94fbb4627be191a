"""The Engine protocol over a vLLM server that runs already."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import httpx

from schemas import DecodeChunk, DecodeRequest, EngineConfig, LoadReport, MethodSpec
from workers.bundle import Bundle
from workers.end_tokens import end_tokens
from workers.engine import EngineBusyError, EngineRefusedError, load_report
from workers.grammar.specification import GrammarError
from workers.http_clients import async_client
from workers.openai_engine.answer import Answer
from workers.openai_engine.completions import ServerError, body, events
from workers.openai_engine.server import TIMEOUT_SECONDS, Server
from workers.refusal import refused_draft, refused_field
from workers.text import AnswerText

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
        """Stream an answer; see workers.engine.Engine. Closing the iterator closes the connection,
        which ends the request on the server."""
        self._check(request)
        server, load = self._server, self._server.load
        drafts = self._specs[request.method].drafter != "none"
        text = AnswerText(self._tokenizer, self._eos, request.sampling)
        answer = Answer(request, text, drafts, load)
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

    def _failed(self, answer: Answer, error: Exception) -> DecodeChunk:
        why = str(error) or f"the connection broke ({type(error).__name__})"
        if isinstance(error, httpx.ReadTimeout):
            why = f"it sent nothing for {self._config.stall_seconds:g} s (engine.stall_seconds)"
        log.error("%s failed on %s: %s", self._server.url, answer.request.request_id, why)
        return answer.failed(f"{self._server.url}: {why}")

    def _check(self, request: DecodeRequest) -> None:
        spec = self._specs.get(request.method)
        if spec is None:
            names = ", ".join(self._specs)
            raise EngineRefusedError(f"method: {request.method!r} is not served here, only {names}")
        given, nothing = request.sampling, (None, ())
        wishes = {name: getattr(given, name) for name in ("logprobs", "prompt_logprobs")}
        wishes["answered_token_ids"] = request.answered_token_ids
        field = next((name for name, wish in wishes.items() if wish not in nothing), None)
        field = field or refused_field(self.methods, given)
        field = field or refused_draft(spec, request.max_draft_tokens)
        if field is not None:
            raise EngineRefusedError(
                f"{field}: engine.openai's servers do not take it; leave it out"
            )
        running, waiting, _, _ = self._server.load.counts()
        if running + waiting >= self._config.max_batch + self._config.max_waiting:
            raise EngineBusyError(
                f"{running} requests run and {waiting} wait at {self._server.url} "
                f"(engine.max_waiting is {self._config.max_waiting}): try again later"
            )
