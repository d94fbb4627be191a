"""Endpoints of an admin's key: learned states to return to, and the configuration in force."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from deployments.api.input import parse
from deployments.api.openapi import describe
from deployments.api.request_bodies import RollbackRequest
from schemas import AppConfig, Snapshot


class LearnedStates(Protocol):
    """Give the feedback actor's states; each call raises ApiError if it cannot be done."""

    def history(self) -> Awaitable[list[Snapshot]]: ...

    def roll_back(self, number: int | None) -> Awaitable[Snapshot]: ...

    def reset(self) -> Awaitable[None]: ...


class AdminApi:
    """Serve the endpoints under /admin, which the guard keeps for admins' keys."""

    def __init__(
        self,
        states: LearnedStates,
        config: Callable[[], AppConfig],
        body: Callable[[Request], Awaitable[bytes]],
    ) -> None:
        self._states, self._config, self._body = states, config, body

    def add_to(self, app: FastAPI) -> None:
        """Add the endpoints."""
        config = describe("The active configuration")
        history = describe("Earlier states of what was learned, the newest first")
        back = describe("Go back to an earlier state; the present one is kept", RollbackRequest)
        reset = describe("Forget what was learned; the present state is kept")
        for path, act, methods, described in (
            ("/admin/config", self.config, ["GET", "HEAD"], config),
            ("/admin/routing/history", self.history, ["GET", "HEAD"], history),
            ("/admin/routing/rollback", self.rollback, ["POST"], back),
            ("/admin/routing/reset", self.reset, ["POST"], reset),
        ):
            app.add_api_route(path, act, methods=methods, openapi_extra=described)

    async def config(self) -> Response:
        return JSONResponse(self._config().model_dump(mode="json"))

    async def history(self) -> Response:
        snapshots = await self._states.history()
        return JSONResponse({"snapshots": [one.model_dump() for one in snapshots]})

    async def rollback(self, request: Request) -> Response:
        asked = parse(RollbackRequest, await self._body(request) or b"{}")
        return JSONResponse((await self._states.roll_back(asked.snapshot)).model_dump())

    async def reset(self) -> Response:
        await self._states.reset()
        return await self.history()
