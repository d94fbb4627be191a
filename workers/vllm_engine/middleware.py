"""What requests ask of a `vllm serve` with several drafters: its --middleware."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fastapi import HTTPException
from prometheus_client import Counter, Gauge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workers.methods import KEPT_KEY, METHOD_KEY
from workers.vllm_engine.drafting.portfolio import REQUESTS, SCOPE

log = logging.getLogger(__name__)

SALT = "cache_salt"
XARGS = ("vllm_xargs",)
OFFERED = (METHOD_KEY, KEPT_KEY)
"""What a request may set there of what is ours."""
PLACES = {
    "/v1/chat/completions": XARGS,
    "/v1/chat/completions/batch": XARGS,
    "/v1/completions": XARGS,
    "/v1/responses": XARGS,
    "/v1/messages": XARGS,
    "/invocations": XARGS,
    "/inference/v1/generate": ("sampling_params", "extra_args"),
}
"""Where a request's body has its extra arguments, by route. A request to another route is decoded
without drafts."""
RESERVED = "specadapt_"

LABELS = ("method", "drafter")
COUNTERS = (
    Counter("specadapt_drafts", "drafts that the target verified", LABELS),
    Counter("specadapt_draft_tokens", "draft tokens that the target verified", LABELS),
    Counter("specadapt_accepted_tokens", "draft tokens that the target accepted", LABELS),
)
METHODS = Gauge("specadapt_method", "1 for each method", ("method",), multiprocess_mode="max")
METRICS_SECONDS = 1.0
"""How long a scrape waits for the engine, which answers between two steps."""


class RequestMethods:
    """Give every request a method and its cache salt, and count acceptance for /metrics."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on. Its body is read and changed when vLLM asks for it, which is after the
        check of the API key."""
        if scope["type"] == "http":
            path = scope["path"].rstrip("/\n")  # a route's path may end with a new line
            place = next((at for end, at in PLACES.items() if path.endswith(end)), None)
            if scope["method"] == "POST" and place is not None:
                config = scope["app"].state.vllm_config.additional_config[REQUESTS]
                change = partial(with_method, place, config["salts"], config["default"])
                receive = _changed(receive, change)
            elif path.endswith("/metrics"):
                for method in scope["app"].state.vllm_config.additional_config[REQUESTS]["salts"]:
                    METHODS.labels(method).set(1)
                await self._count(scope["app"].state.engine_client)
        await self._app(scope, receive, send)

    async def _count(self, engine: Any) -> None:
        """Add what the engines have counted since the last scrape. Counts that take longer
        than METRICS_SECONDS appear in the next scrape."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(_take(engine))
        await asyncio.wait([self._asking], timeout=METRICS_SECONDS)


def with_method(
    place: Sequence[str], salts: dict[str, str | None], default: str, body: bytes
) -> bytes:
    """Return a request's JSON with its method and the cache salt that the method needs.

    place: see PLACES. salts: the cache salt of each method. Bodies that vLLM will refuse are
    returned as they are. Raises ValueError for an unknown method.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return body
    *outer, name = place
    holder = request
    for key in outer:
        holder = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(holder, dict):
        return body
    extra = {} if holder.get(name) is None else holder[name]
    if not isinstance(extra, dict):
        return body
    field = ".".join(place)
    reserved = [key for key in extra if key.startswith(RESERVED) and key not in OFFERED]
    if reserved:
        raise ValueError(f"{field}.{reserved[0]} is unknown: use {' or '.join(OFFERED)}")
    method = extra.get(METHOD_KEY, default)
    if not isinstance(method, str) or method not in salts:
        names = ", ".join(salts)
        raise ValueError(f"{field}.{METHOD_KEY}: {method!r} is not served; methods: {names}")
    tenant, own = request.get(SALT), salts[method]
    # Past responses are looked up among those with the same salt, and of the same adapter.
    scope = json.dumps([request.get("model"), tenant])
    holder[name] = {**extra, METHOD_KEY: method, SCOPE: scope}
    if own is not None and isinstance(tenant, str | None) and tenant != "":
        # A digest, so that no client's salt is a method's by chance.
        request[SALT] = hashlib.sha256(json.dumps([own, tenant]).encode()).hexdigest()
    return json.dumps(request).encode()


async def _take(engine: Any) -> None:
    """Add the engines' counts. A failure is logged, and the page has vLLM's own figures."""
    try:
        # AsyncLLM.collective_rpc returns the first engine's answer only.
        take = engine.engine_core.call_utility_all_async
        taken = await take("collective_rpc", "take_acceptance")
    except Exception as error:  # the engine has ended, or vLLM's client has changed
        log.error("acceptance by drafter is not counted: %r", error)
        return
    for counted, *_ in taken:
        for method, drafter, counts in counted:
            for counter, count in zip(COUNTERS, counts, strict=True):
                counter.labels(method, drafter).inc(count)


def _changed(receive: Receive, change: Callable[[bytes], bytes]) -> Receive:
    """Return a `receive` whose first message is the whole body, changed; the later ones tell when
    the client is gone. It raises HTTPException, which the server answers, for a ValueError."""
    read = False

    async def changed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        parts, more = [], True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return message
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        try:
            return {"type": "http.request", "body": change(b"".join(parts))}
        except ValueError as error:
            raise HTTPException(400, str(error)) from error

    return changed
