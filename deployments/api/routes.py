"""The HTTP surface: OpenAI's endpoints, routing introspection, health, the chat page."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette._utils import get_route_path
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.types import Lifespan

from deployments.api.answering import (
    Answering,
    caller_of,
    ignore,
    ignore_capped,
    slo_of,
)
from deployments.api.embeddings import EmbeddingRequest, Embeddings
from deployments.api.event_stream import Reply, responded
from deployments.api.generation import GenerationRequest
from deployments.api.input import Input, parse, read_body
from deployments.api.introspection import explanation, table_summary
from deployments.api.openapi import ANSWERED, OBJECTIVES, describe, described_routes, document
from deployments.api.prompt_reader import PromptReader
from deployments.api.replies import OpenAIReply, data
from deployments.api.request_bodies import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    ExplainRequest,
    RollbackRequest,
    TokenizeRequest,
)
from deployments.api.responses_and_messages.messages import CountRequest, MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.api.responses_and_messages.surface import Surfaces
from deployments.configuration import live_fields
from deployments.errors import ApiError, no_model, unavailable
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from deployments.request.answer import Answerer
from deployments.request.prompt import Prompt
from schemas import AppConfig

logger = logging.getLogger(__name__)

WEB = {file.name: file for file in (Path(__file__).parents[1] / "web").iterdir()}
# The page and its modules must be of one version, so browsers ask for them after every load.
FRESH = {"cache-control": "no-cache"}

LARGE_BYTES = 64 * 1024
"""Bodies that are not read on the event loop."""
READING = ["GET", "HEAD"]
IGNORED = "x-specadapt-ignored"
MOST_NAMES = 32
LONGEST_NAME = 64
"""Characters of a name. Names come from the client and go into a header and the log."""

Asked = TypeVar("Asked", bound=Input)
Handler = Callable[[Any, Request], Awaitable[Response]]
"""Takes the validated body and the request."""


class ModelName(StringConvertor):
    """A model's name in a path, which may have slashes."""

    regex = ".+"


register_url_convertor("model", ModelName())


class HttpApi:
    """Serve the endpoints over one ingress's parts."""

    def __init__(
        self,
        reader: PromptReader,
        answerer: Answerer,
        embeddings: Embeddings,
        link: FeedbackLink,
        metrics: Metrics,
        config: AppConfig,
    ) -> None:
        self._reader = reader
        self._answerer = answerer
        self._embeddings = embeddings
        self._link = link
        self._metrics = metrics
        self.config = config
        """Replaced when settings change."""
        self.refused_settings: str | None = None
        """Why the last user_config was refused."""
        self._answering = Answering(answerer, link, lambda: self.config)
        self._created = int(time.time())

    def app(self, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
        """Return the ASGI application; `lifespan` runs from its startup to its shutdown."""
        app = FastAPI(
            title="SpecAdapt",
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
            lifespan=lifespan,
            redirect_slashes=False,  # a redirect would go to the client's own Host header
        )
        app.add_exception_handler(ApiError, self._api_error)
        app.add_exception_handler(HTTPException, self._http_error)
        app.add_exception_handler(Exception, self._unexpected)
        add, surfaces = app.add_api_route, Surfaces(self._reader, self._answering)
        posted: tuple[tuple[str, Handler, type[Input], str], ...] = (
            ("/v1/chat/completions", self.chat, ChatRequest, "Answer a conversation"),
            ("/v1/completions", self.completions, CompletionRequest, "Continue a text"),
            ("/v1/responses", surfaces.answer, ResponsesRequest, "Answer as OpenAI's Responses do"),
            ("/v1/messages", surfaces.answer, MessagesRequest, "Answer as Anthropic's Messages do"),
            ("/v1/messages/count_tokens", surfaces.count_tokens, CountRequest, "Count tokens"),
            ("/v1/embeddings", self.embed, EmbeddingRequest, "The router's vectors of texts"),
            ("/tokenize", self.tokenize, TokenizeRequest, "The tokens of a text or a conversation"),
            ("/detokenize", self.detokenize, DetokenizeRequest, "The text of tokens"),
            ("/v1/routing/explain", self.explain, ExplainRequest, "Where a prompt would go"),
        )
        for path, takes, asked, summary in posted:
            answers = issubclass(asked, GenerationRequest | ResponsesRequest | MessagesRequest)
            headers = OBJECTIVES if asked is ExplainRequest else ANSWERED if answers else None
            described = describe(summary, asked, headers)
            add(path, self._posted(takes, asked), methods=["POST"], openapi_extra=described)
        rolls = describe("Go back to a state", RollbackRequest)
        add("/admin/routing/rollback", self.rollback, methods=["POST"], openapi_extra=rolls)
        resets = describe("Forget what was learned")
        add("/admin/routing/reset", self.reset, methods=["POST"], openapi_extra=resets)
        for path, reads, summary in (
            ("/v1/models", self.models, "The models a request may name"),
            ("/v1/models/{name:model}", self.model, "One model"),
            ("/v1/routing", self.routing, "The active routing table"),
            ("/health", self.health, "Whether a prompt can be answered"),
            ("/admin/config", self.admin_config, "The active configuration"),
            (
                "/admin/routing/history",
                self.history,
                "Earlier states of what was learned, the newest first",
            ),
        ):
            add(path, reads, methods=READING, openapi_extra=describe(summary))
        add("/openapi.json", self.openapi, methods=READING)
        add("/", self.page, methods=READING)
        add("/web/{name}", self.page, methods=READING)
        return app

    def _posted(self, takes: Handler, asked: type[Input]) -> Callable[..., Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            return _named(request, await takes(await self._asked(asked, request), request))

        return endpoint

    async def chat(self, asked: ChatRequest, request: Request) -> Response:
        self._check_answers(asked.model)
        caller_of(request).batch(asked.n, "n")
        prompt = await self._reader.chat(asked, caller_of(request))
        return await self._reply(asked, [prompt], request)

    async def completions(self, asked: CompletionRequest, request: Request) -> Response:
        self._check_answers(asked.model)
        prompts = len(asked.prompts())
        caller_of(request).batch(prompts * asked.n, "prompt" if prompts > 1 else "n")
        read = await self._reader.completion(asked, caller_of(request))
        return await self._reply(asked, read, request)

    async def embed(self, asked: EmbeddingRequest, request: Request) -> Response:
        caller = caller_of(request)
        # Texts are embedded one at a time.
        caller.batch(len(asked.texts()), "input", at_once=False)
        return JSONResponse(await self._embeddings.answer(asked, caller))

    async def tokenize(self, asked: TokenizeRequest, request: Request) -> Response:
        return JSONResponse(await self._reader.tokenised(asked, caller_of(request)))

    async def detokenize(self, asked: DetokenizeRequest, request: Request) -> Response:
        return JSONResponse({"prompt": await self._reader.text(asked, caller_of(request))})

    async def models(self) -> Response:
        names = [*self._reader.names.listed, *self._embeddings.models]
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, name: str) -> Response:
        return JSONResponse(self._model(name))

    async def routing(self) -> Response:
        link = self._link
        live = {
            "feedback": {
                "connected": link.connected,
                "problem": link.problem,
                "epoch": link.epoch,
                "observations_waiting": link.waiting,
                "observations_dropped": link.dropped,
            },
            "drift": link.drift and link.drift.model_dump(),
            "circuits": self._answerer.circuits.states(),
            "loads": [load.model_dump(exclude={"requests"}) for load in link.loads],
            "settings": {**live_fields(self.config), "refused": self.refused_settings},
        }
        return JSONResponse(table_summary(link.table) | live)

    async def explain(self, asked: ExplainRequest, request: Request) -> Response:
        self._check_answers(asked.model)
        caller = caller_of(request)
        slo = slo_of(request.headers)
        prompt = await self._reader.explained(asked, caller)
        prompt = replace(prompt, scope=caller.scope_of(prompt.scope), slo=slo)
        caller.read(len(prompt.token_ids))
        decision, _ = await self._answerer.route(prompt, explore=False)
        return JSONResponse(explanation(decision, prompt, self._link.table))

    async def health(self) -> Response:
        ready = self._answerer.calls.ready()
        hosted = ready | self._answerer.starting.startable(ready).keys()
        if not hosted:
            raise unavailable("starting: no replica is ready yet")
        # A half-open circuit counts: without a request it would never close.
        resting = {m for m, state in self._answerer.circuits.states().items() if state == "open"}
        if hosted <= resting:
            raise unavailable("every method is disabled after repeated failures; try again shortly")
        return JSONResponse({"status": "ok", "methods": sorted(ready - resting)})

    # The guard keeps the endpoints under /admin for admins' keys.

    async def admin_config(self) -> Response:
        return JSONResponse(self.config.model_dump(mode="json"))

    async def history(self) -> Response:
        snapshots = await self._link.history()
        return JSONResponse({"snapshots": [one.model_dump() for one in snapshots]})

    async def rollback(self, request: Request) -> Response:
        asked = parse(RollbackRequest, await self._body(request) or b"{}")
        return JSONResponse((await self._link.roll_back(asked.snapshot)).model_dump())

    async def reset(self) -> Response:
        await self._link.reset()
        return await self.history()

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document(request.app.routes))

    async def page(self, name: str = "index.html") -> Response:
        if name not in WEB:
            raise HTTPException(404, "Not Found")
        return FileResponse(WEB[name], headers=FRESH)

    async def _reply(
        self, asked: GenerationRequest, prompts: Sequence[Prompt], request: Request
    ) -> Response:
        ignore_capped(request, asked, prompts, asked.tokens_field)

        async def replied() -> Reply:
            answers = await self._answering.answers(asked, prompts, request)
            return OpenAIReply(asked, prompts, answers, self._reader.token_text, self._reader.tools)

        return await responded(replied(), lambda error: data(error.body()), stream=asked.stream)

    def _check_answers(self, model: str | None) -> None:
        """Raise ApiError 404 for a model that only embeds."""
        if model in self._embeddings.models:
            names = ", ".join(self._reader.names.listed)
            why = f"only embeds texts: use /v1/embeddings, or one of the models {names}"
            raise no_model(f"the model {model!r} {why}")

    async def _asked(self, kind: type[Asked], request: Request) -> Asked:
        ignored = None if self.config.http.strict_fields else set[str]()
        body = await self._body(request)
        read = partial(parse, kind, body, self._reader.sampling_defaults, ignored)
        in_turn, caller = self._reader.tokenizers.read, caller_of(request)
        large = len(body) > LARGE_BYTES
        asked = await in_turn(caller, len(body), lambda _: read()) if large else read()
        if ignored:
            ignore(request, ignored)
            logger.info("fields ignored on %s: %s", request.scope["path"], listed(ignored))
        return asked

    async def _body(self, request: Request) -> bytes:
        return await read_body(request, self.config.http.max_body_bytes)

    def _model(self, name: str) -> dict[str, Any]:
        embeds = name in self._embeddings.models
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "specadapt",
            "parent": None if embeds else self._reader.names.parent(name),
        }

    async def _api_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        self._metrics.refused.inc(tags={"status": str(error.status)})
        body = error.body(get_route_path(request.scope))
        return _named(request, JSONResponse(body, error.status, error.headers()))

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = get_route_path(request.scope)
        if error.status_code == 404 and not path:  # a route prefix: the page is in the folder
            return RedirectResponse(f"{request.scope['root_path'].rpartition('/')[2]}/")
        message = f"{request.method} {path}: {error.detail}"
        if error.status_code == 404:
            offered = {route.path_format for route in described_routes(request.app.routes)}
            public = sorted(path for path in offered if not path.startswith("/admin/"))
            message += f"; available paths: {', '.join(public)}"
        response = await self._api_error(request, ApiError(error.status_code, message))
        response.headers.update(error.headers or {})
        return response

    async def _unexpected(self, request: Request, error: Exception) -> Response:
        logger.error("unexpected failure on %s", request.scope["path"], exc_info=error)
        return await self._api_error(request, ApiError(500, "internal error", code="internal"))


def _named(request: Request, response: Response) -> Response:
    """Return a response whose header IGNORED names what the request has asked for in vain."""
    if ignored := getattr(request.state, "ignored", ()):
        response.headers[IGNORED] = listed(ignored)
    return response


def listed(names: Iterable[str]) -> str:
    """Return names as a header's value: in order, percent-encoded where they are no plain words,
    and cut where they are many or long."""
    ordered = sorted(names)
    shown = [quote(name[:LONGEST_NAME], errors="replace") for name in ordered[:MOST_NAMES]]
    return ", ".join(shown) + ", ..." * (len(ordered) > MOST_NAMES)
