"""A request to an engine and the pieces of its response."""

import hashlib
from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from schemas.base import Schema
from schemas.observation import DecodeStats

FinishReason = Literal["stop", "length", "cancelled", "error"]


TokenId = Annotated[int, Field(ge=0)]
Bias = Annotated[float, Field(ge=-100.0, le=100.0, allow_inf_nan=False)]


GREEDY_BELOW = 1e-5
"""Lower temperatures are 0, as in vLLM: dividing logits by them overflows."""
LEAST_TOP_P, LEAST_REPETITION_PENALTY = 1e-6, 0.01
"""Floors of both settings. At them only the best token is left, and the logit of a token that has
occurred is multiplied by 100."""

Temperature = Annotated[
    float,
    Field(ge=0.0, le=2.0),
    AfterValidator(lambda value: 0.0 if value < GREEDY_BELOW else value),
]
TopP = Annotated[
    float, Field(gt=0.0, le=1.0), AfterValidator(lambda value: max(value, LEAST_TOP_P))
]
RepetitionPenalty = Annotated[
    float,
    Field(gt=0.0, le=10.0),
    AfterValidator(lambda value: max(value, LEAST_REPETITION_PENALTY)),
]


class Grammar(Schema):
    """A grammar that a response must follow, enforced token by token.

    kind: `regex`, `lark` (llguidance's dialect), `gbnf` (llama.cpp's notation) and `json_schema`
    read `text`; `json_object` accepts any JSON object and has no text.
    """

    kind: Literal["json_schema", "json_object", "regex", "lark", "gbnf"]
    text: str = ""

    @model_validator(mode="after")
    def _has_text(self) -> Self:
        if (self.kind == "json_object") == bool(self.text):
            wants = "no text" if self.text else "a text"
            raise ValueError(f"grammar: kind {self.kind!r} takes {wants}")
        return self


class SamplingDefaults(Schema):
    """A model's advised settings for requests that name none; None: no advice."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0.0, le=1.0)
    repetition_penalty: RepetitionPenalty | None = None


class SamplingParams(Schema):
    """How tokens are chosen. Temperature 0 is greedy and ignores min_p, top_p, top_k and seed.

    The order, as in vLLM: grammar, logit_bias, repetition, frequency and presence penalty (these
    move the argmax too), temperature, min_p, top_k, top_p.
    """

    temperature: Temperature = 0.0
    top_p: TopP = 1.0
    top_k: int = Field(default=0, ge=0, description="0 keeps the whole vocabulary")
    min_p: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="drops tokens below min_p times the best token's probability",
    )
    logit_bias: dict[TokenId, Bias] = Field(
        default={}, max_length=1024, description="added to these tokens' logits"
    )
    presence_penalty: float = Field(
        default=0.0,
        ge=-2.0,
        le=2.0,
        description="subtracted from the logits of tokens of the output",
    )
    frequency_penalty: float = Field(
        default=0.0, ge=-2.0, le=2.0, description="subtracted once per occurrence in the output"
    )
    repetition_penalty: RepetitionPenalty = Field(
        default=1.0,
        description="divides positive logits of prompt and output tokens, multiplies negative ones",
    )
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="report log probabilities of each token and of this many best tokens",
    )
    prompt_logprobs: int | None = Field(
        default=None, ge=0, le=20, description="the same for the prompt's tokens after the first"
    )
    seed: int | None = Field(default=None, description="None draws a fresh seed per request")
    max_tokens: int = Field(default=128, ge=1)
    min_tokens: int = Field(
        default=0,
        ge=0,
        description="no end token, stop token or stop string ends an answer of fewer tokens",
    )
    stop: tuple[str, ...] = Field(default=(), max_length=128)
    stop_token_ids: tuple[TokenId, ...] = Field(
        default=(), max_length=1024, description="tokens that end the answer, as the model's own do"
    )
    include_stop_str_in_output: bool = Field(
        default=False, description="the text ends with the stop string, or with the last token's"
    )
    skip_special_tokens: bool = Field(
        default=True, description="the text is without special tokens"
    )
    grammar: Grammar | None = None
    ignore_eos: bool = Field(
        default=False, description="the model's own end tokens do not end the answer"
    )

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens: must be at most max_tokens ({self.max_tokens}), got {self.min_tokens}"
            )
        if self.grammar is not None and self.ignore_eos:
            raise ValueError(
                "ignore_eos: an answer that follows a grammar ends with it: leave ignore_eos out"
            )
        return self

    @property
    def biased(self) -> bool:
        """Return whether a grammar, biases or penalties change the model's own distribution."""
        penalties = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(self.logit_bias or penalties) or self.grammar is not None

    @property
    def free_to_end(self) -> bool:
        """Return whether the model may end the response at any token."""
        return not (self.ignore_eos or self.min_tokens)

    def ends(self, eos: Collection[int]) -> frozenset[int]:
        """Return the tokens that end the response. eos: the model's own."""
        return frozenset(self.stop_token_ids) | frozenset(() if self.ignore_eos else eos)


def derived_seed(seed: int | None, name: str) -> int | None:
    """Derive a seed for `name`. The same arguments give the same seed; None stays None."""
    if seed is None:
        return None
    return int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=7).digest())


class DecodeRequest(Schema):
    """One prompt for one named method of an engine's portfolio."""

    request_id: str = Field(min_length=1)
    method: str
    prompt_token_ids: tuple[int, ...] = Field(min_length=1)
    answered_token_ids: tuple[int, ...] = Field(
        default=(),
        description="beginning of the answer, emitted by another replica; counts in max_tokens",
    )
    predicted_token_ids: tuple[TokenId, ...] = Field(
        default=(), description="a text that the answer is expected to resemble, for look-ups"
    )
    sampling: SamplingParams = SamplingParams()
    expected_tokens: int | None = Field(
        default=None,
        ge=1,
        description="output tokens that loads count; None: max_tokens",
    )
    open_ended: bool = Field(
        default=False, description="whether max_tokens is only what the context has left"
    )
    max_draft_tokens: int | None = Field(
        default=None,
        ge=0,
        description="longest draft of a step, in tokens one after the other; None: the method's",
    )
    scope: str = Field(
        default="", description="prefixes and past answers are shared within one scope only"
    )
    kept: bool = Field(
        default=True, description="whether the answer is kept, so that later ones look it up"
    )
    adapter: str | None = Field(
        default=None,
        description="the LoRA adapter of the target that answers, by its configured name; requests "
        "of different adapters have different scopes",
    )

    @model_validator(mode="after")
    def _goes_on(self) -> Self:
        if len(self.answered_token_ids) >= self.sampling.max_tokens:
            raise ValueError("answered_token_ids: must be fewer than max_tokens")
        return self

    def outstanding(self, emitted: int) -> int:
        """Return the tokens of the response that loads still count after `emitted` ones."""
        left = max(0, self.sampling.max_tokens - emitted)
        if self.expected_tokens is None:
            return left
        return min(left, max(1, self.expected_tokens - emitted))

    @property
    def known_token_ids(self) -> tuple[int, ...]:
        """Return the prompt and the response's beginning."""
        return self.prompt_token_ids + self.answered_token_ids

    @property
    def seed(self) -> int | None:
        """Return the seed of draws.

        A response that continues needs new draws: with those that chose its beginning, it would not
        follow the target's distribution.
        """
        if not self.answered_token_ids:
            return self.sampling.seed
        return derived_seed(self.sampling.seed, f"from {len(self.answered_token_ids)}")


class TokenLogprobs(Schema):
    """Natural log probabilities at one emitted token, under the target's raw logits.

    Raw logits are those before bias, penalties and temperature (vLLM's default, `raw_logprobs`).
    """

    chosen: float
    top: tuple[tuple[int, float], ...] = Field(
        default=(), description="token id and log probability, the most probable first"
    )


class DecodeChunk(Schema):
    """A piece of a response; the last one carries the finish reason and the statistics."""

    request_id: str
    text: str = Field(description="whole characters only; may be empty")
    token_ids: tuple[int, ...] = ()
    drafted: tuple[bool, ...] = Field(
        default=(), description="per token of this chunk: drafted and accepted, or the target's own"
    )
    logprobs: tuple[TokenLogprobs, ...] = Field(
        default=(), description="per token of this chunk where the request asks for them"
    )
    prompt_logprobs: tuple[TokenLogprobs, ...] = Field(
        default=(),
        description="per prompt token after the first, in the first chunk where the request asks "
        "for them",
    )
    cached_prompt_tokens: int = Field(
        default=0, ge=0, description="prompt tokens found in a prefix cache, where known so early"
    )
    finish_reason: FinishReason | None = None
    error: str | None = None
    request_fault: bool = Field(
        default=False,
        description="the request caused the error: another engine would fail too, and this one is "
        "healthy",
    )
    stats: DecodeStats | None = None
