"""A response header that says that recorded answers are replayed and no model runs."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas import EngineConfig

HEADER = "x-specadapt-replay"


class ReplayNotice:
    """ASGI middleware that names the recording and its slowdown in the header
    `x-specadapt-replay`."""

    def __init__(self, app: ASGIApp, notice: str) -> None:
        self._app = app
        self._notice = notice

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noticed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = self._notice
            await send(message)

        await self._app(scope, receive, noticed)


def notice_of(engine: EngineConfig) -> str | None:
    """Return `<recording>, slowed down <n> times` if a replay is served, else None."""
    if engine.replay is None:
        return None
    slowdown = engine.replay_slowdown
    slowed = f", slowed down {slowdown:g} times" if slowdown > 1.0 else ""
    return f"{engine.replay.name}{slowed}"
