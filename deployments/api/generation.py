"""What OpenAI's generating endpoints ask for in common, and how it maps to decoding.

Every field of OpenAI's requests is one of: obeyed (a model field below), without effect here
(`_WITHOUT_EFFECT`), refused unless it asks for nothing (`_ONLY`), or unknown, which is an error
that names it. Defaults are the bundle's (`sampling` in its bundle.json), else OpenAI's:
temperature 1, top_p 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

import pydantic_core
from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from deployments.api.input import Input
from deployments.api.structured import GrammarField, ResponseFormat, grammar
from deployments.errors import ApiError
from schemas import Grammar, SamplingParams

MAX_CHOICES = 16
MAX_BIASES = 1024

_WITHOUT_EFFECT = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
    }
)
# What a parameter may say without asking for anything that is not offered.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": (),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}


_TokenId = Annotated[str, Field(pattern=r"^\d{1,9}$")]
_Bias = Annotated[float, Field(ge=-100.0, le=100.0)]
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


class GenerationRequest(Input, ABC):
    """What both endpoints share.

    `top_k`, `min_p`, `repetition_penalty`, `grammar` and `ignore_eos` are additions to OpenAI's
    parameters: `top_k` 0 keeps the whole vocabulary; `ignore_eos` decodes to max_tokens and is
    meant for benchmarks.
    """

    default_max_tokens: ClassVar[int]
    prompt_field: ClassVar[str]

    model: str
    temperature: float = Field(default=1.0, ge=0.0, le=2.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0, le=2**31 - 1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    logit_bias: Annotated[dict[_TokenId, _Bias], BeforeValidator(_few)] = Field(
        default={}, max_length=MAX_BIASES
    )
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=10.0)
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**63 - 1)
    max_tokens: int | None = Field(default=None, ge=1)
    stop: _StopText | Annotated[list[_StopText], Field(max_length=16, fail_fast=True)] = Field(
        default=[]
    )
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    response_format: ResponseFormat = ResponseFormat(type="text")
    grammar: GrammarField | None = None
    ignore_eos: bool = False

    @model_validator(mode="before")
    @classmethod
    def _asks_for_nothing_else(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for name, allowed in _ONLY.items():
            given = value.get(name)
            if name in value and given is not None and not _among(given, allowed):
                raise ApiError(
                    400,
                    f"{name} is not supported" + _allowed(allowed),
                    param=name,
                    code="unsupported_parameter",
                )
        return {k: v for k, v in value.items() if k not in _WITHOUT_EFFECT and k not in _ONLY}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        schema["properties"] |= {name: {} for name in sorted(_WITHOUT_EFFECT)}
        schema["properties"] |= {name: {"enum": [*only, None]} for name, only in _ONLY.items()}
        return schema

    @property
    def wanted_tokens(self) -> int | None:
        return self.max_tokens

    @cached_property
    def wanted_grammar(self) -> Grammar | None:
        """Return the grammar that the answer has to follow. Raises ApiError if fields contradict
        each other."""
        return grammar(self.response_format, self.grammar, ignore_eos=self.ignore_eos)

    @property
    @abstractmethod
    def wanted_logprobs(self) -> int | None:
        """Return how many best tokens to report with each token; None for no log probabilities."""

    def sampling(
        self, prompt_tokens: int, context_length: int, field: str | None = None
    ) -> SamplingParams:
        """Return how to decode after `prompt_tokens` in a context of `context_length` tokens.

        Without max_tokens the answer may take the rest of the context, up to the endpoint's
        default. field: the prompt's name in errors. Raises ApiError `context_length_exceeded` if
        the request does not fit.
        """
        left = context_length - prompt_tokens
        wanted = self.wanted_tokens
        if left < 1 or (wanted is not None and wanted > left):
            raise self.too_long(f"{prompt_tokens} tokens", context_length, field)
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            logit_bias={int(token): bias for token, bias in self.logit_bias.items()},
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logprobs=self.wanted_logprobs,
            seed=self.seed,
            max_tokens=wanted or min(self.default_max_tokens, left),
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
            grammar=self.wanted_grammar,
            ignore_eos=self.ignore_eos,
        )

    def too_long(self, size: str, context_length: int, field: str | None = None) -> ApiError:
        """Return the error for a prompt of `size` (in words) that exceeds the context.

        field: which of several prompts it is.
        """
        wanted = self.wanted_tokens
        asked = "" if wanted is None else f" and {wanted} more are asked for"
        return ApiError(
            400,
            f"this model's context is {context_length} tokens; the prompt has {size}{asked}",
            param=field or self.prompt_field,
            code="context_length_exceeded",
        )


def _among(given: Any, allowed: tuple[Any, ...]) -> bool:
    # bool is an int in Python, but `logprobs: 0` asks for something and `false` does not.
    return any(given == a and isinstance(given, bool) == isinstance(a, bool) for a in allowed)


def _allowed(allowed: tuple[Any, ...]) -> str:
    if not allowed:
        return "; leave it out"
    return "; leave it out or send " + " or ".join(
        pydantic_core.to_json(value).decode() for value in allowed
    )
