"""The bodies of requests for responses, as OpenAI's, of the routing question asked like one, and of
/tokenize and /detokenize, as vLLM's."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from deployments.api.generation import ONLY, WITHOUT_EFFECT, GenerationRequest
from deployments.api.input import Input
from deployments.api.messages import ChatMessage, Message, Messages, Prediction
from deployments.api.tools.fields import (
    MAX_TOOLS,
    FunctionDefinition,
    Named,
    Offer,
    ToolChoice,
    Tools,
    functions,
    offered,
    offered_functions,
)
from deployments.errors import ApiError, invalid
from workers.chat_template import RESERVED

COMPLETION_MAX_TOKENS = 16
MAX_ANSWERS = 64

_TokenId = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Several = Field(min_length=1, max_length=MAX_ANSWERS, fail_fast=True)


def _form(prompt: Any) -> str:
    """Return the form of a prompt by its first item, so that errors speak of that form."""
    if not isinstance(prompt, list):
        return "text"
    if prompt and isinstance(prompt[0], str):
        return "texts"
    return "lists of ids" if prompt and isinstance(prompt[0], list) else "ids"


class Templated(Input):
    """Fields that a chat template reads.

    `reasoning_effort`, `verbosity` and `chat_template_kwargs` are its variables.
    """

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    verbosity: Literal["low", "medium", "high"] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default={})
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    tools: Tools = Field(default=[])

    @property
    def offer(self) -> Offer:
        """Return the functions that the template shows and the response may call."""
        tools = functions(self.tools)
        return Offer(tools, tools)

    def template(self) -> dict[str, Any]:
        """Return the arguments with which `encode_chat` writes the messages.

        Raises ApiError for fields that contradict each other, and for a variable that is an
        argument of the template's own.
        """
        if self.continue_final_message and self.add_generation_prompt:
            why = "not possible with add_generation_prompt; set one of them"
            raise invalid("continue_final_message", why)
        reserved = sorted(RESERVED & self.chat_template_kwargs.keys())
        if reserved:
            why = "the template's own argument; leave it out"
            raise invalid(f"chat_template_kwargs.{reserved[0]}", why)
        variables: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
            variables["enable_thinking"] = self.reasoning_effort != "none"
        if self.verbosity is not None:
            variables["verbosity"] = self.verbosity
        continues = self.continue_final_message
        return {
            "add_generation_prompt": self.add_generation_prompt is not False and not continues,
            "continue_final_message": continues,
            "variables": variables | self.chat_template_kwargs,
        }


class ChatRequest(Templated, GenerationRequest):
    """POST /v1/chat/completions. Without a maximum the response ends with the context."""

    default_max_tokens: ClassVar[int | None] = None
    prompt_field: ClassVar[str] = "messages"

    messages: Messages = Field(min_length=1, fail_fast=True)
    prediction: Prediction | None = None
    max_completion_tokens: int | None = Field(default=None, ge=1)
    include_reasoning: bool = True
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    functions: Annotated[list[FunctionDefinition], Field(max_length=MAX_TOOLS, fail_fast=True)] = (
        Field(default=[])
    )
    function_call: Literal["none", "auto"] | Named | None = None

    @property
    def offer(self) -> Offer:
        """Return the functions that the response may call. Raises ApiError for a wrong choice."""
        if self.tools and self.functions:
            raise invalid("functions", "the older form of tools; send one of them")
        if self.functions:
            offer = offered_functions(self.functions, self.function_call)
        else:
            offer = offered(self.tools, self.tool_choice, self.parallel_tool_calls)
        if offer.required and self.ignore_eos:
            why = "not possible where the answer has to be a tool call; leave it out"
            raise invalid("ignore_eos", why)
        return offer

    @property
    def wanted_logprobs(self) -> int | None:
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs", "only read with logprobs; send logprobs true with it")
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def wanted_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def tokens_field(self) -> str:
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. Without a maximum a response has at most 16 tokens, as OpenAI's.

    Several prompts are answered side by side, `n` times each and at most 64 times altogether.
    With `max_tokens` 0 they are read and not answered.
    """

    default_max_tokens: ClassVar[int | None] = COMPLETION_MAX_TOKENS
    prompt_field: ClassVar[str] = "prompt"

    prompt: Annotated[
        Annotated[str, Tag("text")]
        | Annotated[list[int], Field(min_length=1, fail_fast=True), Tag("ids")]
        | Annotated[list[str], _Several, Tag("texts")]
        | Annotated[
            list[Annotated[list[int], Field(fail_fast=True)]], _Several, Tag("lists of ids")
        ],
        Discriminator(_form),
    ]
    max_tokens: int | None = Field(default=None, ge=0)
    add_special_tokens: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=5)
    echo: bool = False

    @property
    def wanted_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def wanted_prompt_logprobs(self) -> int | None:
        return self.logprobs if self.echo else None

    def prompts(self) -> dict[str, str | list[int]]:
        """Return each prompt, text or token ids, under the name that an error gives it.

        Raises ApiError if the request asks for more responses than one request may have.
        """
        given = self.prompt
        if isinstance(given, str):
            return {"prompt": given}
        ids = [one for one in given if isinstance(one, int)]
        if ids:
            return {"prompt": ids}
        several: list[str | list[int]] = [one for one in given if not isinstance(one, int)]
        answers = len(several) * self.n
        if answers > MAX_ANSWERS:
            asked = f"{len(several)} prompts with n {self.n} ask for {answers} answers"
            raise invalid("prompt", f"{asked}; one request may have {MAX_ANSWERS}")
        return {f"prompt[{index}]": one for index, one in enumerate(several)}


class _Either(Input):
    """A prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages = Field(default=[], fail_fast=True)

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.prompt is None) == (not self.messages):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        return self


class TokenizeRequest(_Either, Templated):
    """POST /tokenize: a text, or messages as a chat's prompt.

    A text gets the tokens that the tokenizer puts around it unless `add_special_tokens` is false,
    as in vLLM. Messages get what their template writes.
    """

    without_effect = WITHOUT_EFFECT
    only = ONLY

    add_special_tokens: bool | None = None
    return_token_strs: bool = False

    @model_validator(mode="after")
    def _specials(self) -> Self:
        if self.add_special_tokens and self.messages:
            why = "the chat template writes all special tokens; leave it out"
            raise invalid("add_special_tokens", why, "unsupported_parameter")
        return self


class DetokenizeRequest(Input):
    """POST /detokenize: token ids."""

    model: str | None = None
    tokens: Annotated[list[_TokenId], Field(fail_fast=True)]


class ExplainRequest(_Either):
    """POST /v1/routing/explain: a prompt (or messages) as it would be asked."""

    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    max_tokens: int | None = Field(default=None, ge=1)

    def chat_messages(self) -> list[Message]:
        """Return the conversation."""
        if self.prompt is not None:
            return [ChatMessage(role="user", content=self.prompt)]
        return self.messages


class RollbackRequest(Input):
    """POST /admin/routing/rollback: the number of a snapshot; left out: the newest one."""

    snapshot: int | None = Field(default=None, ge=1, le=2**31 - 1)
