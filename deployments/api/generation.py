"""What OpenAI's generating endpoints ask for in common, and how it maps to decoding.

Every field of OpenAI's and vLLM's requests is one of: obeyed (a model field below), in
WITHOUT_EFFECT, or in ONLY: refused unless it asks for nothing. Other fields are unknown.
Defaults are the bundle's (`sampling` in its bundle.json), else OpenAI's: temperature 1, top_p 1.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from deployments.api.input import Input
from deployments.api.structured import (
    GUIDED,
    GrammarField,
    ResponseFormat,
    StructuredOutputs,
)
from deployments.errors import ApiError, invalid
from schemas import Grammar, SamplingParams
from schemas.keys import Priority

MAX_CHOICES = 16
MAX_BIASES = 1024
MAX_STOPS = 128
TOO_LONG = "context_length_exceeded"
"""The code of the error."""

WITHOUT_EFFECT = frozenset(
    (
        *("guided_decoding_backend", "include_reasoning", "metadata", "mm_payload"),
        *("parallel_tool_calls", "prompt_cache_options", "prompt_cache_retention"),
        *("reasoning_effort", "request_id", "return_mm_kwargs", "return_token_offsets"),
        *("routed_experts_prompt_start", "safety_identifier", "session_id"),
        *("spaces_between_special_tokens", "stream_interval", "truncation_side", "user"),
        "verbosity",
    )
)
_UNSET = (
    *("audio", "chat_template", "guided_whitespace_pattern", "moderation", "prediction"),
    *("prompt_embeds", "prompt_logprobs", "repetition_detection", "thinking_token_budget"),
    *("truncate_prompt_tokens", "web_search_options"),
)
_FALSE = (
    *("add_special_tokens", "echo", "return_prompt_text", "return_tokens_as_token_ids"),
    *("use_beam_search", "watermarking"),
)
_NO_ITEMS = (
    *("allowed_token_ids", "bad_words", "documents", "functions", "logprob_token_ids"),
    "tools",
)
_NO_FIELDS = (
    *("ec_transfer_params", "kv_transfer_params", "media_io_kwargs", "mm_processor_kwargs"),
    "vllm_xargs",
)
ONLY: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(_UNSET, ()),
    **dict.fromkeys(_FALSE, (False,)),
    **dict.fromkeys(_NO_ITEMS, ([],)),
    **dict.fromkeys(_NO_FIELDS, ({},)),
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "length_penalty": (1.0,),
    "modalities": (["text"],),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
}
"""What a parameter that is not offered may say, which is that nothing is asked for."""

_TokenId = Annotated[str, Field(pattern=r"^\d{1,9}$")]
_Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
_Id = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Scope = Annotated[str, Field(min_length=1, max_length=1024)]
_StopText = Annotated[str, Field(min_length=1, max_length=256)]


def _few(biases: Any) -> Any:
    """Refuse too many at once: each wrong one would be an error of its own."""
    if isinstance(biases, dict) and len(biases) > MAX_BIASES:
        raise PydanticCustomError(
            "too_long", "at most {most} tokens, got {got}", {"most": MAX_BIASES, "got": len(biases)}
        )
    return biases


class StreamOptions(Input):
    """`include_usage` adds a last chunk with the usage and no choices.

    `include_drafted`, an addition to OpenAI's, adds `drafted` to the choices of a chunk: the text
    of its tokens in runs `[text, drafted and accepted]`, the others being the target's own.
    """

    include_usage: bool = False
    include_drafted: bool = False
    include_obfuscation: bool = False


class Speculation(Input):
    """How to speculate on one request; no other service has it.

    method: the method that answers, as in `model: "<bundle>:<method>"`. max_draft_tokens: longest
    draft of a step, in tokens one after the other. off: draft nothing.
    """

    method: str | None = None
    max_draft_tokens: int | None = Field(default=None, ge=0, le=64)
    off: bool = False

    @model_validator(mode="after")
    def _one_wish(self) -> Self:
        if self.off and (self.method is not None or self.max_draft_tokens):
            why = "not possible with a method or max_draft_tokens; leave it out"
            raise invalid("speculation.off", why)
        return self

    @property
    def most(self) -> int | None:
        """Return the longest draft, None for the method's own."""
        return 0 if self.off else self.max_draft_tokens


class Decoding(Input):
    """How a response is decoded: what every generating endpoint has under the same names.

    Fields that OpenAI does not have are vLLM's, and `grammar`. `top_k` 0 and -1 keep the whole
    vocabulary. `priority` above 0 puts the request among those that are refused first under load.
    `prompt_cache_key` and `cache_salt` are scopes: only requests with the same ones share cached
    prefixes and past responses.
    """

    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=-1, le=2**31 - 1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    logit_bias: Annotated[dict[_TokenId, _Bias], BeforeValidator(_few)] = Field(
        default={}, max_length=MAX_BIASES
    )
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=10.0)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    min_tokens: int = Field(default=0, ge=0, le=2**31 - 1)
    stop_token_ids: Annotated[list[_Id], Field(max_length=MAX_BIASES, fail_fast=True)] = Field(
        default=[]
    )
    ignore_eos: bool = False
    grammar: GrammarField | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: int = Field(default=0, ge=-(2**63), le=2**63 - 1)
    prompt_cache_key: _Scope | None = None
    cache_salt: _Scope | None = None
    speculation: Speculation = Speculation()


class GenerationRequest(Decoding, ABC):
    """What chats and completions share. `service_tier` "flex" is a low priority too, and `store`
    false keeps the response out of the drafters' training."""

    default_max_tokens: ClassVar[int | None]
    """Output tokens where the request names no maximum; None: what the context has left."""
    prompt_field: ClassVar[str]
    without_effect = WITHOUT_EFFECT
    only = ONLY

    model: str
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    max_tokens: int | None = Field(default=None, ge=1)
    stop: _StopText | Annotated[list[_StopText], Field(max_length=MAX_STOPS, fail_fast=True)] = (
        Field(default=[])
    )
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    response_format: ResponseFormat = ResponseFormat(type="text")
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    store: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _older_names(cls, value: Any) -> Any:
        """Read GUIDED's fields as fields of `structured_outputs`."""
        if not isinstance(value, dict):
            return value
        outputs = {n: value[old] for old, n in GUIDED.items() if value.get(old) is not None}
        rest = {name: given for name, given in value.items() if name not in GUIDED}
        if outputs and rest.get("structured_outputs") is not None:
            raise invalid("structured_outputs", f"give either it or {', '.join(GUIDED)}")
        return rest | {"structured_outputs": outputs} if outputs else rest

    @cached_property
    def wanted_grammar(self) -> tuple[str, Grammar] | None:
        """Return the one grammar that the response has to follow, with its field; None without one.

        Raises ApiError naming the field if there are two, if one lacks its text, or with
        ignore_eos.
        """
        asked = list(self._grammars())
        if self.structured_outputs is not None and not list(self.structured_outputs.grammars()):
            why = "give one of json, regex, choice, grammar and json_object"
            raise invalid("structured_outputs", why)
        if not asked:
            return None
        if len(asked) > 1:
            fields = [field for field, _ in asked]
            raise invalid(fields[1].partition(".")[0], f"give either {fields[0]} or {fields[1]}")
        if self.ignore_eos:
            raise invalid("ignore_eos", "not possible with a grammar; leave it out")
        return asked[0]

    def _grammars(self) -> Iterator[tuple[str, Grammar]]:
        form, given = self.response_format, self.grammar
        if form.type == "json_object":
            yield "response_format", Grammar(kind="json_object")
        elif form.type == "json_schema":
            if form.json_schema is None:
                raise invalid("response_format.json_schema", "required with type 'json_schema'")
            schema = json.dumps(form.json_schema.schema_)
            yield "response_format.json_schema.schema", Grammar(kind="json_schema", text=schema)
        if given is not None:
            if (given.kind == "json_object") == bool(given.text):
                why = "kind 'json_object' takes no text; all others need one"
                raise invalid("grammar.text", why)
            yield "grammar.text", Grammar(kind=given.kind, text=given.text)
        if self.structured_outputs is not None:
            yield from self.structured_outputs.grammars()

    @property
    def wanted_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def tokens_field(self) -> str:
        """Return the field of the request's maximum."""
        return "max_tokens"

    @property
    def open_ended(self) -> bool:
        """Return whether only the context limits the response."""
        return self.wanted_tokens is None and self.default_max_tokens is None

    @property
    def most_urgent(self) -> Priority:
        """Return the highest priority that the request may have, whatever its key's."""
        return "low" if self.priority > 0 or self.service_tier == "flex" else "high"

    def cache_scope(self, adapter: str | None) -> str:
        """Return the scope of the request within its caller's; empty for the caller's own. Each
        adapter has its own."""
        scopes = (self.prompt_cache_key, self.cache_salt, adapter)
        if not any(scopes):
            return ""
        return hashlib.sha256(json.dumps(scopes).encode()).hexdigest()

    @property
    @abstractmethod
    def wanted_logprobs(self) -> int | None:
        """Return how many best tokens to report with each token; None for no log probabilities."""

    @property
    def wanted_prompt_logprobs(self) -> int | None:
        """Return the same for the prompt's tokens."""
        return None

    def sampling(
        self,
        prompt_tokens: int,
        context_length: int,
        field: str | None = None,
        *,
        caps: bool = False,
    ) -> SamplingParams:
        """Return how to decode after `prompt_tokens` in a context of `context_length` tokens.

        Without max_tokens the response may take the rest of the context, up to the endpoint's
        default. caps: a larger maximum is lowered to what is left. field: the prompt's name in
        errors. Raises ApiError: TOO_LONG if the request does not fit, and for
        fields that contradict each other.
        """
        left = context_length - prompt_tokens
        wanted = self.wanted_tokens
        if left < 1 or (wanted is not None and wanted > left and not caps):
            raise self.too_long(f"{prompt_tokens} tokens", context_length, field, left)
        most = min(left, wanted if wanted is not None else self.default_max_tokens or left)
        if self.min_tokens > most:
            why = f"the answer has at most {most} tokens, got {self.min_tokens}"
            raise invalid("min_tokens", why)
        structure = self.wanted_grammar
        own: dict[str, Any] = {
            "top_k": max(0, self.top_k),
            "logit_bias": {int(token): bias for token, bias in self.logit_bias.items()},
            "logprobs": self.wanted_logprobs,
            "prompt_logprobs": self.wanted_prompt_logprobs,
            "max_tokens": max(1, most),
            "stop": (self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            "stop_token_ids": tuple(self.stop_token_ids),
            "grammar": None if structure is None else structure[1],
        }
        same = SamplingParams.model_fields.keys() - own.keys()
        return SamplingParams(**own, **{name: getattr(self, name) for name in same})

    def too_long(
        self, size: str, context_length: int, field: str | None = None, left: int = 0
    ) -> ApiError:
        """Return the error for a prompt of `size` (in words) that exceeds the context.

        field: which of several prompts it is. left: tokens that the context has left.
        """
        wanted = self.wanted_tokens
        asked = "" if wanted is None else f" and {wanted} more are asked for"
        if asked and left > 0:
            asked += f"; {self.tokens_field} may be at most {left}"
        why = f"this model's context is {context_length} tokens; the prompt has {size}{asked}"
        return invalid(field or self.prompt_field, why, TOO_LONG)
