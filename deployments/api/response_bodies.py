"""The bodies of responses, as the OpenAPI document describes them."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Body(BaseModel):
    """Exactly these fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Error(Body):
    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None = Field(description="the field that is wrong")
    code: str | None


class ErrorBody(Body):
    """Every answer that is not 2xx; the last event of a stream that breaks off."""

    error: Error


class Speculative(Body):
    """What speculation did, over all choices; times are the engine's."""

    method: str
    cluster: int = Field(ge=-1, description="-1 where the prompt could not be embedded")
    reason: str
    target_steps: int
    drafted_tokens: int
    accepted_tokens: int
    mean_acceptance_length: float = Field(description="tokens per target step, bonus included")
    tokens_per_s: float
    queue_seconds: float
    decode_seconds: float
    draft_seconds: float
    verify_seconds: float
    sample_seconds: float
    other_seconds: float
    stalled_seconds: float
    total_seconds: float
    mean_batch: float
    looping: bool
    routing_ms: float
    engine_first_token_ms: float


class PromptTokens(Body):
    cached_tokens: int


class CompletionTokens(Body):
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Body):
    prompt_tokens: int
    prompt_tokens_details: PromptTokens
    completion_tokens: int
    completion_tokens_details: CompletionTokens
    total_tokens: int
    speculative: Speculative


class CalledFunction(Body):
    name: str
    arguments: str = Field(description="a JSON object")


class CalledTool(Body):
    id: str
    type: Literal["function"]
    function: CalledFunction


class Message(Body):
    role: Literal["assistant"]
    content: str | None = Field(description="null where the answer is tool calls alone")
    reasoning_content: str | None = Field(
        default=None, description="only where the model writes think tags"
    )
    refusal: None
    tool_calls: list[CalledTool] | None = Field(
        default=None, description="only where the answer calls tools"
    )


class TopLogprob(Body):
    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobsBody(Body):
    content: list[ChatLogprob]
    refusal: None


class CompletionLogprobsBody(Body):
    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="null for an echoed prompt's first one")
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


Finish = Literal["stop", "length"]
ChatFinish = Literal["stop", "length", "tool_calls"]


PromptIds = Annotated[
    list[int] | None, Field(default=None, description="only with return_token_ids, once")
]
AnswerIds = Annotated[
    list[int] | None, Field(default=None, description="only with return_token_ids")
]


class ChatChoice(Body):
    index: int
    message: Message
    logprobs: ChatLogprobsBody | None
    finish_reason: ChatFinish
    token_ids: AnswerIds


class ChatCompletion(Body):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    prompt_token_ids: PromptIds
    usage: Usage


class FunctionDelta(Body):
    name: str | None = None
    arguments: str = Field(description="a part of the JSON object")


class ToolDelta(Body):
    """The first one of a call has its id, type and name."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta


class Delta(Body):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolDelta] | None = None


Drafted = list[tuple[str, bool]]


class ChatChunkChoice(Body):
    index: int
    delta: Delta
    drafted: Drafted | None = Field(default=None, description="only with include_drafted")
    token_ids: AnswerIds
    logprobs: ChatLogprobsBody | None
    finish_reason: ChatFinish | None


class Told(Body):
    """Who answers and why, where the headers came before that was known."""

    method: str
    cluster: int
    reason: str
    degraded: str | None = None


ToldLate = Annotated[
    Told | None,
    Field(default=None, description="only in the first event, if the headers do not say it"),
]


class ChatCompletionChunk(Body):
    """One event of a streamed chat answer."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    prompt_token_ids: PromptIds
    specadapt: ToldLate
    usage: Usage | None = Field(default=None, description="only in the last, with include_usage")


class CompletionChoice(Body):
    index: int
    text: str
    logprobs: CompletionLogprobsBody | None
    finish_reason: Finish
    prompt_token_ids: PromptIds
    token_ids: AnswerIds


class Completion(Body):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunkChoice(Body):
    index: int
    text: str
    drafted: Drafted | None = Field(default=None, description="only with include_drafted")
    prompt_token_ids: PromptIds
    token_ids: AnswerIds
    logprobs: CompletionLogprobsBody | None
    finish_reason: Finish | None


class CompletionChunk(Body):
    """One event of a streamed completion."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChunkChoice]
    specadapt: ToldLate
    usage: Usage | None = Field(default=None, description="only in the last, with include_usage")


class EmbeddingEntry(Body):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="numbers, or float32 in base64")


class TextUsage(Body):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Body):
    object: Literal["list"]
    data: list[EmbeddingEntry]
    model: str
    usage: TextUsage


class Model(Body):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    parent: str | None


class ModelList(Body):
    object: Literal["list"]
    data: list[Model]


class Health(Body):
    status: Literal["ok"]
    methods: list[str]
