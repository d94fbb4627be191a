"""The bodies of /tokenize and /detokenize, as vLLM's."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from deployments.api import known_fields
from deployments.api.input import Input
from deployments.api.messages import Messages
from deployments.api.request_bodies import Templated
from deployments.errors import ApiError, invalid

_TokenId = Annotated[int, Field(ge=0, le=2**63 - 1)]


class TokenizeRequest(Templated):
    """POST /tokenize: a text, or messages as a chat's prompt.

    A text gets the tokens that the tokenizer puts around it unless `add_special_tokens` is false,
    as in vLLM. Messages get what their template writes.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Messages = Field(default=[], fail_fast=True)
    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    @model_validator(mode="before")
    @classmethod
    def _asks_for_nothing_else(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return known_fields.without_known(value, cls.model_fields)

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        if self.add_special_tokens and self.messages:
            raise ApiError(
                400,
                "add_special_tokens: the chat template writes all special tokens; leave it out",
                param="add_special_tokens",
                code="unsupported_parameter",
            )
        return self

    def too_long(self, size: str, context_length: int, field: str | None = None) -> ApiError:
        """Return the error for a text of `size` (in words) that exceeds the context."""
        param = field or ("prompt" if self.messages == [] else "messages")
        return ApiError(
            400,
            f"this model's context is {context_length} tokens; the text has {size}",
            param=param,
            code="context_length_exceeded",
        )


class DetokenizeRequest(Input):
    """POST /detokenize: token ids."""

    model: str | None = None
    tokens: Annotated[list[_TokenId], Field(fail_fast=True)]

    def check(self, context_length: int) -> None:
        """Raise ApiError for more tokens than the context has. The text of one may be a hundred
        characters."""
        if len(self.tokens) > context_length:
            most = f"at most {context_length}, which is this model's context"
            raise invalid("tokens", f"{most}, got {len(self.tokens)}")
