"""The endpoints of the APIs that translate to chats."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from deployments.api.answering import Answering, caller_of, headers_of, ignore_capped
from deployments.api.event_stream import Begun, Event, streamed
from deployments.api.generation import TOO_LONG
from deployments.api.openapi import ANSWERED, describe
from deployments.api.prompt_reader import PromptReader
from deployments.api.replies import WholeResponse, data
from deployments.api.request_bodies import ChatRequest
from deployments.api.responses_and_messages.messages import CountRequest, MessagesRequest
from deployments.api.responses_and_messages.responses import ResponsesRequest
from deployments.api.responses_and_messages.surface import SurfaceBody, Writer
from deployments.api.tools.parser import Spoken
from deployments.api.tools.pieces import Piece, settled
from deployments.api.usage import usage
from deployments.errors import ApiError
from deployments.guard.caller import Caller
from deployments.request.answered import Answer
from deployments.request.prompt import Prompt

Read = Callable[[type[Any], Request], Awaitable[Any]]
"""Read and validate a request's body as a model."""


class Surfaces:
    """Serve /v1/responses and /v1/messages over the chat's parts."""

    def __init__(self, reader: PromptReader, answering: Answering, read: Read) -> None:
        self._reader = reader
        self._answering = answering
        self._read = read

    def add_to(self, app: FastAPI) -> None:
        """Add the endpoints to an application."""
        responses = describe("Answer as OpenAI's Responses do", ResponsesRequest, ANSWERED)
        messages = describe("Answer as Anthropic's Messages do", MessagesRequest, ANSWERED)
        counted = describe("Count a prompt's tokens without answering it", CountRequest)
        for path, answer, described in (
            ("/v1/responses", self.responses, responses),
            ("/v1/messages", self.messages, messages),
            ("/v1/messages/count_tokens", self.count_tokens, counted),
        ):
            app.add_api_route(path, answer, methods=["POST"], openapi_extra=described)

    async def responses(self, request: Request) -> Response:
        return await self._answer(await self._read(ResponsesRequest, request), request)

    async def messages(self, request: Request) -> Response:
        return await self._answer(await self._read(MessagesRequest, request), request)

    async def count_tokens(self, request: Request) -> Response:
        asked = await self._read(CountRequest, request)
        prompt = await self._prompt(asked, caller_of(request))
        return JSONResponse({"input_tokens": len(prompt.token_ids)})

    async def _answer(self, asked: SurfaceBody, request: Request) -> Response:
        prompt = await self._prompt(asked, caller_of(request))
        ignore_capped(request, asked.chat, [prompt], asked.here("max_tokens"))
        tokens = len(prompt.token_ids)
        parser = self._reader.tools.parser(asked.chat.offer)
        spoken = Spoken(self._reader.token_text, parser, prompt.reasoning)

        async def answered() -> tuple[Writer, Answer]:
            [[answer]] = await self._answering.answers(asked.chat, [prompt], request)
            return asked.writer(answer.request_id, tokens), answer

        async def begun() -> Begun:
            writer, answer = await answered()
            return Begun([answer], partial(_events, writer, answer, spoken))

        def failed(error: ApiError) -> str:
            writer = asked.writer(uuid4().hex, tokens)
            return "".join(map(_written, [*writer.begin(), *writer.failed(error)]))

        if asked.stream:
            return await streamed(begun(), failed, asked.ping)
        writer, answer = await answered()
        return WholeResponse(await _whole(writer, answer, spoken), headers=headers_of(answer))

    async def _prompt(self, asked: SurfaceBody, caller: Caller) -> Prompt:
        known: dict[str, list[int]] = {}
        try:
            caps = False if asked.shortens else asked.caps
            return await self._reader.chat(asked.chat, caller, known, caps=caps)
        except ApiError as error:
            if not (asked.shortens and error.code == TOO_LONG):
                raise asked.named(error) from error
            shorter = await self._shortened(asked.chat, caller, known)
            if shorter is None:
                raise asked.named(error) from error
            return shorter

    async def _shortened(
        self, chat: ChatRequest, caller: Caller, known: dict[str, list[int]]
    ) -> Prompt | None:
        """Return the prompt with as few of the first turns left out as are too much; None if the
        last turn alone is too long."""
        head, turns = _turns(chat)
        found, few, most = None, 1, len(turns) - 1
        while few <= most:
            without = (few + most) // 2
            messages = [*head, *(message for turn in turns[without:] for message in turn)]
            try:
                shorter = chat.model_copy(update={"messages": messages})
                found = await self._reader.chat(shorter, caller, known, caps=False)
            except ApiError as error:
                if error.code != TOO_LONG:
                    raise
                few = without + 1
            else:
                most = without - 1
        return found


def _turns(chat: ChatRequest) -> tuple[list[Any], list[list[Any]]]:
    """Return the instructions that a conversation begins with, and its turns: each begins with a
    user's message."""
    head: list[Any] = []
    turns: list[list[Any]] = []
    for message in chat.messages:
        if not turns and message.role in ("system", "developer"):
            head.append(message)
        elif message.role == "user" or not turns:
            turns.append([message])
        else:
            turns[-1].append(message)
    return head, turns


async def _whole(writer: Writer, answer: Answer, spoken: Spoken) -> Mapping[str, Any]:
    """Return the body of a response. Raises ApiError if it breaks off."""
    pieces: list[Piece] = []
    finish = "stop"
    async with aclosing(answer.chunks) as chunks:
        async for chunk in chunks:
            pieces += spoken.of(writer.inspected(chunk))
            if chunk.finish_reason is not None:
                finish = spoken.finish(chunk.finish_reason)
    writer.begin()
    for piece in settled(pieces):
        writer.add(piece)
    writer.end(finish, usage([answer], [answer], spoken.reasoning_tokens))
    return writer.body()


async def _events(
    writer: Writer, answer: Answer, spoken: Spoken, told: Mapping[str, Any]
) -> AsyncGenerator[str, None]:
    """Yield server-sent events, those of a chunk as one piece.

    The first piece has the events that begin the response, the last one those that end it. A
    response that breaks off ends with an event that says so. told: fields that the first event has
    in addition.
    """
    begun, ended = False, False
    said: list[str] = []
    try:
        async with aclosing(answer.chunks) as chunks:
            async for chunk in chunks:
                inspected = writer.inspected(chunk)
                if not begun:
                    begun, said = True, _begun(writer, told)
                for piece in spoken.of(inspected):
                    said += map(_written, writer.add(piece))
                if chunk.finish_reason is not None:
                    ended, finish = True, spoken.finish(chunk.finish_reason)
                    counted = usage([answer], [answer], spoken.reasoning_tokens)
                    said += map(_written, writer.end(finish, counted))
                if said:
                    yield "".join(said)
                    said = []
    except ApiError as error:
        if not begun:
            said = _begun(writer, told)
        if not ended:
            yield "".join([*said, *map(_written, writer.failed(error))])
    finally:
        await answer.close()


def _begun(writer: Writer, told: Mapping[str, Any]) -> list[str]:
    (name, first), *others = writer.begin()
    return [*map(_written, [(name, {**first, **told}), *others])]


def _written(event: Event) -> str:
    name, body = event
    return f"event: {name}\n{data(body)}"
