"""The header that names the ignored fields of a request's body."""

from collections.abc import Iterable
from urllib.parse import quote

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

IGNORED = "x-specadapt-ignored"
MOST_NAMES = 32
LONGEST_NAME = 64
"""Characters of a name. Names come from the client and go into a header and the log."""


def listed(names: Iterable[str]) -> str:
    """Return names as a header's value: in order, percent-encoded where they are no plain words,
    and cut where they are many or long."""
    ordered = sorted(names)
    shown = [quote(name[:LONGEST_NAME], errors="replace") for name in ordered[:MOST_NAMES]]
    return ", ".join(shown) + ", ..." * (len(ordered) > MOST_NAMES)


class IgnoredFields:
    """ASGI middleware that adds IGNORED where an endpoint has set `ignored` in the request's
    state."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                ignored = scope.get("state", {}).get("ignored")
                if ignored:
                    MutableHeaders(scope=message)[IGNORED] = ignored
            await send(message)

        await self._app(scope, receive, named)
