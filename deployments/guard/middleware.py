"""The middleware before every endpoint: API keys, limits, security headers, access log."""

import json
import logging
import time
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from ray.exceptions import RayError
from starlette._utils import get_route_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.errors import ApiError
from deployments.guard.caller import Caller, Clock, Meters, check
from deployments.guard.key_file import KeyFile, scope_of
from deployments.metrics import KeyMetrics, Metrics
from deployments.traces import trace_id
from schemas import GuardConfig
from schemas.keys import Isolation

access = logging.getLogger("specadapt.access")

REQUEST_ID = "x-request-id"
"""The client's id, or the one from Ray's proxy, which also puts it on the response."""
REQUEST_ID_LENGTH = 128
"""Logged characters of a request id."""
PUBLIC = ("/", "/health", "/openapi.json")
PUBLIC_FOLDER = "/web/"
ADMIN = "/admin"
SHOWN = ("method", "cluster", "reason", "degraded", "ignored")
"""Our own headers that pages of other origins may read."""
SECURITY = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """ASGI middleware that checks keys and limits. Without a key file every client may ask,
    except for /admin."""

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyFile | None,
        metrics: Metrics,
        isolation: Isolation,
        clock: Clock = time.monotonic,
    ) -> None:
        self._app = app
        self._keys = keys
        self._metrics, self._usage = metrics, KeyMetrics()
        self._isolation = isolation
        self._meters = Meters(clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, started = Headers(scope=scope), time.perf_counter()
        answered: dict[str, Any] = {}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = MutableHeaders(scope=message)
                given.update(SECURITY)
                answered["status"] = message["status"]
                answered["answered_by"] = given.get("x-specadapt-method")
            await send(message)

        async def received() -> Message:
            try:
                return await receive()
            except RayError:  # the client has left, or Ray's proxy has died
                return {"type": "http.disconnect"}

        caller = Caller()
        try:
            # The routed path: under a route prefix scope's path starts with the prefix.
            caller = self._admitted(get_route_path(scope) or "/", headers)
            scope.setdefault("state", {})["caller"] = caller
            with caller.running():
                await self._app(scope, received, sent)
        except ApiError as error:
            self._metrics.refused.inc(tags={"status": str(error.status)})
            body = error.body(get_route_path(scope))
            refusal = JSONResponse(body, error.status, error.headers())
            await refusal(scope, receive, sent)
        finally:
            if caller.name is not None:
                self._usage.used(
                    caller.name,
                    caller.tenant,
                    caller.prompt_tokens,
                    caller.cached_tokens,
                    caller.output_tokens,
                )
            line = {
                "request_id": headers.get(REQUEST_ID, "")[:REQUEST_ID_LENGTH],
                "method": scope["method"],
                "path": scope["path"],
                **answered,
                "key": caller.name,
                "tenant": caller.tenant,
                "tokens": caller.tokens,
                "seconds": round(time.perf_counter() - started, 4),
            }
            if (traced := trace_id()) is not None:
                line["trace_id"] = traced
            # Serve writes the message in its text encoding, and the fields in JSON.
            access.info(json.dumps(line), extra=line)

    def _admitted(self, path: str, headers: Headers) -> Caller:
        """Return the caller of a request.

        Raises ApiError: 401 without an accepted key, 403 if the key is not for this path, 429 if
        its limits are used up.
        """
        if path in PUBLIC or path.startswith(PUBLIC_FOLDER):
            return Caller()
        for_admin = path == ADMIN or path.startswith(f"{ADMIN}/")
        if self._keys is None:
            if for_admin:
                why = "/admin needs an admin key, and http.guard.keys_file is not set"
                raise ApiError(403, why, code="forbidden")
            return Caller()
        key = self._keys.find(_presented(headers))
        if key is None:
            raise ApiError(
                401,
                "send an accepted API key as `Authorization: Bearer KEY` or `x-api-key: KEY`",
                code="invalid_api_key",
            )
        if key.admin != for_admin:
            why = "needs an admin key" if for_admin else "does not accept an admin key"
            raise ApiError(403, f"{path} {why}", code="forbidden")
        meters = self._meters.of(key, self._keys.ring)
        check(meter.excess() for meter in meters)
        scope = scope_of(key, self._isolation)
        return Caller(key.name, key.tenant, key.priority, meters, scope, key.teaches)


def guarded(app: FastAPI, config: GuardConfig, metrics: Metrics) -> FastAPI:
    """Put the guard before an application. Raises ValueError if the key file cannot be read."""
    keys = None if config.keys_file is None else KeyFile(config.keys_file)
    app.add_middleware(Guard, keys=keys, metrics=metrics, isolation=config.isolated)
    if config.cors_origins:  # outermost: a browser asks beforehand, without a key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],  # SDKs send many of their own, and none is obeyed unread
            expose_headers=[f"x-specadapt-{name}" for name in SHOWN],
        )
    return app


def _presented(headers: Headers) -> str:
    """Return the key of a request: a bearer token, or in Anthropic's header."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    bearer = key.strip() if scheme.lower() == "bearer" else ""
    return bearer or headers.get("x-api-key", "").strip()
