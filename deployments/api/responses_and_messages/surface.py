"""Base classes of the APIs that are translated to a chat."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from deployments.api.event_stream import COMMENT
from deployments.api.generation import Decoding
from deployments.api.input import validated
from deployments.api.request_bodies import ChatRequest
from deployments.api.responses_and_messages.message_writer import MessageWriter
from deployments.api.responses_and_messages.response_writer import ResponseWriter
from deployments.errors import ApiError

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
