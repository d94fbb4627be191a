"""A vLLM server: what it tells of itself, the body of a request and the events of its stream."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from pydantic import AliasPath, BaseModel, Field, ValidationError

from schemas import DecodeRequest, EngineConfig, MethodSpec
from schemas.decode import TokenId
from workers.engine import EngineBusyError, EngineRefusedError
from workers.engine_load import EngineLoad
from workers.grammar.specification import lark
from workers.http_clients import client
from workers.methods import KEPT_KEY, METHOD_KEY, VLLM_PREFIX

REFUSALS, FULL = (400, 413, 422), 429
"""Statuses of a server that works and does not take the request."""
SHOWN = 300
"""Characters of a server's message that ours shows."""


class ServerError(RuntimeError):
    """The server failed, or cannot be used."""


class Choice(BaseModel):
    """New tokens of a response."""

    token_ids: tuple[TokenId, ...]
    finish_reason: str | None = None


class Event(BaseModel):
    """One event of a stream. The last has no choices, but the counts that the server's flags ask
    for.

    drafted, accepted: draft tokens; `accepted` includes those beyond the response's end.
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
    strings too, so that it ends the response by itself.
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
    """Yield the events of a response up to its end.

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


log = logging.getLogger(__name__)

POLL_SECONDS, TIMEOUT_SECONDS = 1.0, 5.0
FAILURES = 3
"""Failed polls in a row after which a server that takes connections counts as failed."""

RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
USED, CACHE = "vllm:kv_cache_usage_perc", "vllm:cache_config_info"
METHODS = "specadapt_method"
"""The metric in which `specadapt vllm serve` names its methods."""


class Server:
    """Poll a server in a thread.

    running, waiting: requests of all clients at the last poll. load: of the forwarded answers.
    """

    def __init__(self, specs: Sequence[MethodSpec], config: EngineConfig, model: str) -> None:
        """Poll the server once. model: its name there.

        Raises ValueError naming the setting that does not fit it. A server that does not answer is
        unhealthy until it does.
        """
        assert config.openai is not None
        self.url, self.model, self.load = config.openai.urls[0], model, EngineLoad()
        self.headers = _headers(config.openai.api_key_file)
        self.healthy, self.running, self.waiting = False, 0, 0
        self._wanted = [spec.name.removeprefix(VLLM_PREFIX) for spec in specs]
        self._context = config.max_context
        self._failures, self._why = FAILURES, ""
        self._closed = threading.Event()
        self._client = client(self.url, headers=self.headers, timeout=TIMEOUT_SECONDS)
        self._poll()
        threading.Thread(target=self._poll_forever, daemon=True).start()

    def close(self) -> None:
        """End the polls. May be called twice."""
        self._closed.set()
        self.healthy = False

    def _poll_forever(self) -> None:
        with closing(self._client):
            while not self._closed.wait(POLL_SECONDS):
                try:
                    self._poll()
                except Exception as error:  # a malformed page must not end the polls
                    self._unused(str(error) or type(error).__name__)

    def _poll(self) -> None:
        """Update the figures. Raises ValueError as the constructor does."""
        root = self.url.removesuffix("/v1")
        try:
            self._get(f"{root}/health")
            figures = _figures(self._get(f"{root}/metrics").text)
            if not self.healthy:
                self._check({labels.get("method", "") for labels, _ in figures[METHODS]})
        except (httpx.HTTPError, ServerError) as error:
            lost = isinstance(error, httpx.ConnectError)
            self._failures = FAILURES if lost else self._failures + 1
            if self._failures >= FAILURES:
                self._unused(str(error) or type(error).__name__)
            return
        self.running, self.waiting = (
            int(sum(value for _, value in figures[name])) for name in (RUNNING, WAITING)
        )
        used = [value for _, value in figures[USED]] or [0.0]
        self.load.slots = sum(_slots(labels) for labels, _ in figures[CACHE])
        self.load.iterated(self.running, self.waiting, sum(used) / len(used))
        self._failures, self._why, self.healthy = 0, "", not self._closed.is_set()

    def _unused(self, why: str) -> None:
        """Count the server as failed, and log a new reason."""
        if why != self._why:
            log.error("%s is not used: %s", self.url, why)
        self._why, self.healthy = why, False

    def _get(self, url: str) -> httpx.Response:
        response = self._client.get(url)
        if response.status_code != httpx.codes.OK:
            raise ServerError(f"{url} has status {response.status_code}")
        return response

    def _check(self, methods: set[str]) -> None:
        """Raise ValueError unless the server has the model, the context and the methods."""
        told = self._get(f"{self.url}/models")
        try:
            models = {model["id"]: model for model in told.json()["data"]}
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(f"{told.url} lists no models") from error
        if self.model not in models:
            raise ValueError(
                f"engine.openai.model: {self.url} does not serve {self.model!r}; models: "
                f"{', '.join(models)}"
            )
        most = models[self.model].get("max_model_len") or self._context
        if most < self._context:
            raise ValueError(
                f"engine.max_context: {self.url} takes {most} tokens at most, got {self._context}"
            )
        if not methods and len(self._wanted) > 1:
            raise ValueError(
                f"methods: {self.url} names no methods, so it has one: leave all but that one out, "
                "or start the server with `specadapt vllm serve`"
            )
        missing = [name for name in self._wanted if methods and name not in methods]
        if missing:
            raise ValueError(
                f"methods: {self.url} does not serve {', '.join(missing)}; methods: "
                f"{', '.join(sorted(methods))}"
            )


def _headers(key_file: Path | None) -> dict[str, str]:
    """Return the headers of every request."""
    if key_file is None:
        return {}
    try:
        key = key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"engine.openai.api_key_file: {key_file} cannot be read") from error
    # httpx shows a header that it refuses, and the key with it
    if not (key and key.isascii() and key.isprintable()):
        raise ValueError(
            f"engine.openai.api_key_file: {key_file} must hold one line, a key in ASCII"
        )
    return {"Authorization": f"Bearer {key}"}


def _figures(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the labels and values of the metrics that are needed, one entry for each engine."""
    names = (RUNNING, WAITING, USED, CACHE, METHODS)
    # to parse all of vLLM's metrics would hold the replica up
    lines = [line for line in text.split("\n") if line.startswith(names)]
    found = defaultdict(list)
    try:
        families = [*text_string_to_metric_families("\n".join([*lines, ""]))]
    except ValueError as error:
        raise ServerError(f"/metrics is malformed: {error}") from error
    for sample in (sample for family in families for sample in family.samples):
        found[sample.name].append((sample.labels, sample.value))
    if not found[RUNNING]:
        raise ServerError(f"/metrics has no {RUNNING}: it is not vLLM's")
    return found


def _slots(labels: dict[str, str]) -> int:
    """Return the tokens of an engine's KV cache; 0 if it does not tell."""
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    return int(blocks) * int(size) if blocks.isdigit() and size.isdigit() else 0
