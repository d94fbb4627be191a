"""The APIs that translate to chats: the base of their bodies, and how they are answered."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar, Self
from uuid import uuid4

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from deployments.api.answering import Answering, caller_of, ignore_capped
from deployments.api.event_stream import COMMENT, Event, Reply, responded
from deployments.api.generation import TOO_LONG, Decoding
from deployments.api.input import validated
from deployments.api.prompt_reader import PromptReader
from deployments.api.replies import data, usage
from deployments.api.request_bodies import ChatRequest
from deployments.api.responses_and_messages.message_writer import MessageWriter
from deployments.api.responses_and_messages.response_writer import ResponseWriter
from deployments.api.tools.parser import Piece, Spoken, settled
from deployments.errors import ApiError
from deployments.guard.caller import Caller
from deployments.request.answered import Answer
from deployments.request.prompt import Prompt
from schemas import DecodeChunk

Writer = ResponseWriter | MessageWriter
"""Writes one response as events, and collects its body from the same pieces.

`inspected` looks at a chunk before it is read, and returns the chunk to read. `begin`, `add` and
`end` return the events before the first chunk's (None: without one), of a piece and after the last
one; `failed` those of a response that breaks off. finish: as in a chat. `body` is the whole
response.
"""


SAME = (*Decoding.model_fields, "chat_template_kwargs", "model", "stream")
"""Fields that a chat request has under the same names."""


class SurfaceBody(Decoding, ABC):
    """A request that translates to a chat request."""

    names: ClassVar[Mapping[str, str]]
    """The names that fields of a chat request have here, for errors, the longer ones first."""
    ping: ClassVar[str] = COMMENT
    """Sent to keep an idle stream open."""
    caps: ClassVar[bool | None] = None
    """Whether max_tokens is lowered to what the context has left; None: as configured."""

    model: str
    stream: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default={})
    _chat: ChatRequest = PrivateAttr()

    @abstractmethod
    def chat_body(self) -> dict[str, Any]:
        """Return the chat request's fields, except SAME."""

    @abstractmethod
    def writer(self, answer_id: str, prompt_tokens: int, /) -> Writer:
        """Return a writer of the response."""

    @property
    def shortens(self) -> bool:
        """Return whether earlier turns may be left out of a conversation that is too long."""
        return False

    @model_validator(mode="after")
    def _translates(self, info: ValidationInfo) -> Self:
        """Validate the chat request. Raises ApiError naming the field as it is called here."""
        body = {name: getattr(self, name) for name in SAME} | self.chat_body()
        try:
            self._chat = validated(ChatRequest, body, ignored=info.context)
        except ApiError as error:
            raise self.named(error) from error
        return self

    @property
    def chat(self) -> ChatRequest:
        """Return the chat request."""
        return self._chat

    def named(self, error: ApiError) -> ApiError:
        """Return a chat request's error with the name that its field has here."""
        if error.param is None:
            return error
        param, message = self.here(error.param), error.message
        for field in (error.param, "max_tokens"):
            message = re.sub(rf"\b{re.escape(field)}(?!\w)", self.here(field), message)
        return ApiError(error.status, message, param=param, code=error.code)

    def here(self, param: str) -> str:
        """Return the name that a field of the chat request has here."""
        for name, here in self.names.items():
            param = re.sub(rf"(^|\.){re.escape(name)}\b", rf"\g<1>{here}", param, count=1)
        return param


@dataclass(frozen=True)
class Surfaces:
    """Answer /v1/responses and /v1/messages over the chat's parts."""

    reader: PromptReader
    answering: Answering

    async def count_tokens(self, asked: SurfaceBody, request: Request) -> Response:
        """Return the number of a prompt's tokens."""
        prompt = await self._prompt(asked, caller_of(request))
        return JSONResponse({"input_tokens": len(prompt.token_ids)})

    async def answer(self, asked: SurfaceBody, request: Request) -> Response:
        """Answer a request in its own form."""
        prompt = await self._prompt(asked, caller_of(request))
        ignore_capped(request, asked.chat, [prompt], asked.here("max_tokens"))
        tokens = len(prompt.token_ids)

        async def replied() -> Reply:
            [[answer]] = await self.answering.answers(asked.chat, [prompt], request)
            parser = self.reader.tools.parser(asked.chat.offer)
            spoken = Spoken(self.reader.token_text, parser, prompt.reasoning)
            return SurfaceReply(asked.writer(answer.request_id, tokens), answer, spoken)

        def failed(error: ApiError) -> str:
            writer = asked.writer(uuid4().hex, tokens)
            return "".join(map(_written, [*writer.begin(None), *writer.failed(error)]))

        return await responded(replied(), failed, stream=asked.stream, ping=asked.ping)

    async def _prompt(self, asked: SurfaceBody, caller: Caller) -> Prompt:
        known: dict[str, list[int]] = {}
        try:
            caps = False if asked.shortens else asked.caps
            return await self.reader.chat(asked.chat, caller, known, caps=caps)
        except ApiError as error:
            shorter = None
            if asked.shortens and error.code == TOO_LONG:
                shorter = await self._shortened(asked.chat, caller, known)
            if shorter is None:
                raise asked.named(error) from error
            return shorter

    async def _shortened(
        self, chat: ChatRequest, caller: Caller, known: dict[str, list[int]]
    ) -> Prompt | None:
        """Return the prompt with as few of the first turns left out as are too much; None if the
        last turn alone is too long."""
        messages = chat.messages
        head = len([*takewhile(lambda one: one.role in ("system", "developer"), messages)])
        # Each turn but the first begins with a user's message.
        turns = [head, *(i for i in range(head + 1, len(messages)) if messages[i].role == "user")]
        found, few, most = None, 1, len(turns) - 1
        while few <= most:
            without = (few + most) // 2
            left = [*messages[:head], *messages[turns[without] :]]
            try:
                shorter = chat.model_copy(update={"messages": left})
                found = await self.reader.chat(shorter, caller, known, caps=False)
            except ApiError as error:
                if error.code != TOO_LONG:
                    raise
                few = without + 1
            else:
                most = without - 1
        return found


class SurfaceReply(Reply):
    """Write the one response of a request."""

    def __init__(self, writer: Writer, answer: Answer, spoken: Spoken) -> None:
        super().__init__([answer])
        self._answer, self._writer, self._spoken = answer, writer, spoken

    async def whole(self) -> Mapping[str, Any]:
        pieces: list[Piece] = []
        finish = "stop"
        async with aclosing(self._answer.chunks) as chunks:
            async for chunk in chunks:
                pieces += self._spoken.of(self._writer.inspected(chunk))
                if chunk.finish_reason is not None:
                    finish = self._spoken.finish(chunk.finish_reason)
        for piece in settled(pieces):
            self._writer.add(piece)
        self._end(finish)
        return self._writer.body()

    def begin(self, told: Mapping[str, Any], first: DecodeChunk | None, /) -> list[str]:
        (name, body), *others = self._writer.begin(first)
        return [*map(_written, [(name, {**body, **told}), *others])]

    def of_chunk(self, _: int, chunk: DecodeChunk, /) -> Iterator[str]:
        for piece in self._spoken.of(self._writer.inspected(chunk)):
            yield from map(_written, self._writer.add(piece))
        if chunk.finish_reason is not None:
            yield from map(_written, self._end(self._spoken.finish(chunk.finish_reason)))

    def failed(self, error: ApiError) -> Iterator[str]:
        return map(_written, self._writer.failed(error))

    def _end(self, finish: str) -> list[Event]:
        counted = usage(self.answers, self.answers, self._spoken.reasoning_tokens)
        return self._writer.end(finish, counted)


def _written(event: Event) -> str:
    name, body = event
    return f"event: {name}\n{data(body)}"
