"""vLLM's /v1/completions: the body of a request and the events of its stream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Collection
from typing import Any

import httpx
from pydantic import AliasPath, BaseModel, Field, ValidationError

from schemas import DecodeRequest
from schemas.decode import TokenId
from workers.engine import EngineBusyError, EngineRefusedError
from workers.grammar.specification import lark
from workers.methods import KEPT_KEY, METHOD_KEY, VLLM_PREFIX

REFUSALS, FULL = (400, 413, 422), 429
"""Statuses of a server that works and does not take the request."""
SHOWN = 300
"""Characters of a server's message that ours shows."""


class ServerError(RuntimeError):
    """The server failed, or cannot be used."""


class Choice(BaseModel):
    """New tokens of an answer."""

    token_ids: tuple[TokenId, ...]
    finish_reason: str | None = None


class Event(BaseModel):
    """One event of a stream. The last has no choices, but the counts that the server's flags ask
    for.

    drafted, accepted: draft tokens; `accepted` includes those beyond the answer's end.
    """

    choices: tuple[Choice, ...] = Field((), max_length=1)
    cached: int | None = Field(
        None, validation_alias=AliasPath("usage", "prompt_tokens_details", "cached_tokens")
    )
    queue_ms: float | None = Field(None, validation_alias=AliasPath("metrics", "queue_time_ms"))
    drafted: int | None = Field(
        None, validation_alias=AliasPath("metrics", "speculative_decoding", "num_draft_tokens")
    )
    accepted: int | None = Field(
        None,
        validation_alias=AliasPath("metrics", "speculative_decoding", "num_accepted_draft_tokens"),
    )
    error: dict[str, Any] | None = None


def body(request: DecodeRequest, model: str, eos: Collection[int]) -> dict[str, Any]:
    """Return a request as vLLM's JSON. eos: the model's own end tokens.

    Every parameter is named, so that none has a default of the server's. The server looks for stop
    strings too, so that it ends the answer by itself.
    """
    given = request.sampling
    same = {"temperature", "top_p", "top_k", "min_p", "max_tokens", "min_tokens", "stop"}
    same |= {"presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos"}
    same |= {"include_stop_str_in_output", "skip_special_tokens", "logit_bias"}
    return given.model_dump(mode="json", include=same) | {
        "model": model,
        "prompt": request.prompt_token_ids,
        "seed": request.seed,
        "stop_token_ids": sorted(given.ends(eos)),
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "structured_outputs": given.grammar and {"grammar": lark(given.grammar)},
        "cache_salt": request.scope or None,
        "vllm_xargs": {
            METHOD_KEY: request.method.removeprefix(VLLM_PREFIX),
            **({} if request.kept else {KEPT_KEY: 0}),
        },
    }


async def events(response: httpx.Response) -> AsyncGenerator[Event, None]:
    """Yield the events of an answer up to its end.

    Raises EngineRefusedError and EngineBusyError where the server does not take the request,
    ServerError where it fails, and what httpx raises.
    """
    if response.status_code != httpx.codes.OK:
        await response.aread()
        raise _refusal(response)
    kind = response.headers.get("content-type", "nothing")
    if not kind.startswith("text/event-stream"):
        raise ServerError(f"it returned {kind} instead of a stream")
    held = b""
    async for piece in response.aiter_bytes():
        # httpx splits lines at U+2028 too, which JSON may hold
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            field, _, data = line.partition(b":")
            if data.strip() == b"[DONE]":
                return
            if field == b"data":
                yield _event(data)


def _event(data: bytes) -> Event:
    try:
        event = Event.model_validate_json(data)
    except ValidationError as error:
        told = error.errors(include_url=False)[0]
        where = ".".join(map(str, told["loc"]))
        raise ServerError(f"malformed event in its stream: {where} {told['msg']}") from error
    if event.error is not None:
        raise _failure(event.error.get("code"), str(event.error.get("message")))
    return event


def _refusal(response: httpx.Response) -> Exception:
    """Return the error of a response with a status other than 200."""
    message = response.text
    with contextlib.suppress(ValueError, KeyError, TypeError):  # else it is in no format of vLLM's
        message = str(response.json()["error"]["message"])
    if response.has_redirect_location:
        message = f"redirect to {response.headers['location']}; name it in engine.openai.urls"
    return _failure(response.status_code, message)


def _failure(status: object, message: str) -> Exception:
    """Return the error of a status. Within a stream, vLLM writes the status into an event."""
    if status in REFUSALS:
        return EngineRefusedError(message)
    if status == FULL:
        return EngineBusyError(message)
    return ServerError(f"status {status}: {message[:SHOWN]}")
