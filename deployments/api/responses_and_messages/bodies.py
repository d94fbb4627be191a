"""The bodies of Responses and Messages, as the OpenAPI document describes them."""

from typing import Any, Literal

from pydantic import Field

from deployments.api.response_bodies import Body, Speculative, ToldLate


class CachedTokens(Body):
    cached_tokens: int
    cache_write_tokens: int


class ReasoningTokens(Body):
    reasoning_tokens: int


class ResponseUsage(Body):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int
    speculative: Speculative


class ResponseError(Body):
    code: str
    message: str


class ResponseBody(Body):
    """An answer: its items are messages of text and function calls."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    service_tier: str
    store: Literal[False]
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None


class ResponseEvent(Body):
    """One event of a streamed Response; `type` is the event's name."""

    type: str
    specadapt: ToldLate
    sequence_number: int
    response: ResponseBody | None = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: list[Any] | None = None


class MessageUsage(Body):
    input_tokens: int = Field(description="of the prompt that were not in a prefix cache")
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    speculative: Speculative | None = None


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageBody(Body):
    """An answer: blocks of text and uses of tools."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(Body):
    """One event of a streamed Message; `type` is the event's name."""

    type: str
    specadapt: ToldLate
    message: MessageBody | None = None
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: MessageUsage | None = None


class TokenCount(Body):
    input_tokens: int


class AnthropicError(Body):
    type: str
    message: str


class AnthropicErrorBody(Body):
    """Every answer below /v1/messages that is not 2xx."""

    type: Literal["error"]
    error: AnthropicError
