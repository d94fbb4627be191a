"""What requests ask of a `vllm serve` with several drafters: its --middleware."""

import asyncio
import hashlib
import json
from typing import Any

from prometheus_client import Counter
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workers.vllm_engine.drafting.portfolio import METHOD, REQUESTS, SCOPE

XARGS = "vllm_xargs"
SALT = "cache_salt"
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    "/invocations",
)
"""Routes whose bodies have `vllm_xargs` and `cache_salt`. A request to another route is decoded
without drafts."""
RESERVED = "specadapt_"

LABELS = ("method", "drafter")
COUNTERS = (
    Counter("specadapt_drafts", "drafts that the target verified", LABELS),
    Counter("specadapt_draft_tokens", "draft tokens that the target verified", LABELS),
    Counter("specadapt_accepted_tokens", "draft tokens that the target accepted", LABELS),
)
METRICS_SECONDS = 1.0
"""How long a scrape waits for the engine, which answers between two steps."""


class RequestMethods:
    """Give every request a method and its cache salt, and count acceptance for /metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse an unknown method with status 400."""
        if scope["type"] == "http":
            path = scope["path"].rstrip("/")
            if scope["method"] == "POST" and path.endswith(PATHS):
                body = await _body(receive)
                config = scope["app"].state.vllm_config.additional_config[REQUESTS]
                try:
                    body = with_method(body, config["salts"], config["default"])
                except ValueError as error:
                    await _refusal(str(error))(scope, receive, send)
                    return
                receive = _replayed(body, receive)
            elif path.endswith("/metrics"):
                await self._count(scope["app"].state.engine_client)
        await self._app(scope, receive, send)

    async def _count(self, engine: Any) -> None:
        """Add what the engine has counted since the last scrape; without waiting for a long step,
        the next scrape shows it."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(_take(engine))
        await asyncio.wait([self._asking], timeout=METRICS_SECONDS)


def with_method(body: bytes, salts: dict[str, str | None], default: str) -> bytes:
    """Return a request's JSON with its method and the cache salt that the method needs.

    salts: the cache salt of each method. Bodies that vLLM will refuse are returned as they are.
    Raises ValueError for an unknown method.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body
    given = request.get(XARGS) if isinstance(request, dict) else ()
    extra = {} if given is None else given
    if not isinstance(extra, dict):
        return body
    reserved = [name for name in extra if name.startswith(RESERVED) and name != METHOD]
    if reserved:
        raise ValueError(f"{XARGS}.{reserved[0]} is unknown: use {METHOD}")
    method = extra.get(METHOD, default)
    if not isinstance(method, str) or method not in salts:
        names = ", ".join(salts)
        raise ValueError(f"{XARGS}.{METHOD}: {method!r} is not served; methods: {names}")
    request[XARGS] = {**extra, METHOD: method}
    tenant, own = request.get(SALT), salts[method]
    if isinstance(tenant, str) and tenant:
        # Past answers are looked up among those with the same salt.
        request[XARGS][SCOPE] = tenant
    if own is not None and tenant is None:
        request[SALT] = own
    elif own is not None and isinstance(tenant, str) and tenant:
        request[SALT] = hashlib.sha256(f"{own} {tenant}".encode()).hexdigest()
    return json.dumps(request).encode()


async def _take(engine: Any) -> None:
    try:
        counted, *_ = await engine.collective_rpc("take_acceptance")
    except Exception:  # the engine has ended, which vLLM reports
        return
    for method, drafter, counts in counted:
        for counter, count in zip(COUNTERS, counts, strict=True):
            counter.labels(method, drafter).inc(count)


async def _body(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with the body; then it tells when the client is gone."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed


def _refusal(message: str) -> JSONResponse:
    error = {"message": message, "type": "BadRequestError", "param": XARGS, "code": 400}
    return JSONResponse({"error": error}, status_code=400)
