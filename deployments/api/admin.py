"""Endpoints of an admin's key: learned states to return to, and the configuration in force."""

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from deployments.api.input import parse
from deployments.api.introspection import History
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
        app.add_api_route("/admin/config", self.config, methods=["GET", "HEAD"])
        app.add_api_route("/admin/routing/history", self.history, methods=["GET", "HEAD"])
        app.add_api_route("/admin/routing/rollback", self.rollback, methods=["POST"])
        app.add_api_route("/admin/routing/reset", self.reset, methods=["POST"])

    async def config(self) -> Response:
        return JSONResponse(self._config().model_dump(mode="json"))

    async def history(self) -> Response:
        return JSONResponse(History(snapshots=await self._link.history()).model_dump())

    async def rollback(self, request: Request) -> Response:
        asked = parse(RollbackRequest, await self._body(request) or b"{}")
        return JSONResponse((await self._link.roll_back(asked.snapshot)).model_dump())

    async def reset(self) -> Response:
        await self._link.reset()
        return await self.history()
