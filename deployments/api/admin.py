"""Endpoints of an admin's key: learned states to return to, and the configuration in force."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from deployments.api.input import parse
from deployments.api.openapi import describe
from deployments.api.request_bodies import RollbackRequest
from deployments.learning.link import FeedbackLink
from schemas import AppConfig


class AdminApi:
    """Serve the endpoints under /admin, which the guard keeps for admins' keys."""

    def __init__(
        self,
        link: FeedbackLink,
        config: Callable[[], AppConfig],
        body: Callable[[Request], Awaitable[bytes]],
    ) -> None:
        self._link, self._config, self._body = link, config, body

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
        snapshots = await self._link.history()
        return JSONResponse({"snapshots": [one.model_dump() for one in snapshots]})

    async def rollback(self, request: Request) -> Response:
        asked = parse(RollbackRequest, await self._body(request) or b"{}")
        return JSONResponse((await self._link.roll_back(asked.snapshot)).model_dump())

    async def reset(self) -> Response:
        await self._link.reset()
        return await self.history()
