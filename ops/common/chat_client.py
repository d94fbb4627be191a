"""A client of the service's chat endpoint, timed from the outside."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from ops.common.boundary import InputError

DATA = "data: "


class RequestFailedError(RuntimeError):
    """The service answered with an error; the message is the service's own."""


@dataclass
class Reply:
    """What one response told and took. Seconds run from the request being sent.

    pieces: of text that were streamed.
    """

    headers: dict[str, str] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    text: str = ""
    pieces: int = 0
    first_text_seconds: float | None = None
    seconds: float = 0.0

    @property
    def output_tokens(self) -> int:
        """The tokens that the server counts, or else the pieces of the stream."""
        return int(self.usage.get("completion_tokens", self.pieces))


async def model_names(client: httpx.AsyncClient) -> list[str]:
    """Return the ids of /v1/models: the model, `<name>:<method>` for each method, and others.

    Raises InputError if no service answers at the URL.
    """
    try:
        response = await client.get("/v1/models")
        response.raise_for_status()
        first, *others = response.json()["data"]
        return [str(model["id"]) for model in (first, *others)]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError) as error:
        raise InputError(
            f"no service answers at {client.base_url} ({error or type(error).__name__}); "
            "start one with `specadapt serve`"
        ) from error


async def stream_chat(
    client: httpx.AsyncClient,
    messages: Sequence[dict[str, str]],
    reply: Reply,
    **parameters: Any,
) -> AsyncGenerator[str, None]:
    """Yield the response's text as it comes and fill in `reply`; raises RequestFailedError."""
    body = {
        "messages": list(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        **parameters,
    }
    started = time.perf_counter()
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != httpx.codes.OK:
            raise RequestFailedError(_error_message(response.status_code, await response.aread()))
        reply.headers = dict(response.headers)
        async for line in event_lines(response):
            elapsed = time.perf_counter() - started
            if not line.startswith(DATA) or line == f"{DATA}[DONE]":
                continue
            text = _take(json.loads(line.removeprefix(DATA)), reply)
            reply.seconds = elapsed
            if text:
                reply.first_text_seconds = reply.first_text_seconds or elapsed
                reply.text += text
                reply.pieces += 1
                yield text


async def event_lines(response: httpx.Response) -> AsyncIterator[str]:
    """The lines of server-sent events. httpx's own end at U+2028 and others too, which the events'
    JSON may hold."""
    rest = ""
    async for text in response.aiter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            yield line.removesuffix("\r")
    if rest:
        yield rest


def _take(event: dict[str, Any], reply: Reply) -> str:
    if "error" in event:
        raise RequestFailedError(str(event["error"].get("message", event["error"])))
    for name, value in event.get("specadapt", {}).items():  # what late headers did not say
        reply.headers[f"x-specadapt-{name}"] = str(value)
    reply.usage = event.get("usage") or reply.usage
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices") or ())


def _error_message(status: int, body: bytes) -> str:
    try:
        return f"{status}: {json.loads(body)['error']['message']}"
    except (ValueError, LookupError, TypeError):
        return f"{status}: {body[:200].decode(errors='replace')}"
