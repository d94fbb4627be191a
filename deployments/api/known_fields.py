"""Fields of OpenAI's and vLLM's bodies that are known here and are not obeyed."""

from collections.abc import Mapping
from typing import Any

import pydantic_core

from deployments.errors import ApiError

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


def without_known(body: Mapping[str, Any], obeyed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without the fields of this module, unless they are among those `obeyed`.

    Raises ApiError for one that asks for something.
    """
    refuse_others(body, {name: ONLY[name] for name in ONLY.keys() - obeyed.keys()})
    known = (WITHOUT_EFFECT | ONLY.keys()) - obeyed.keys()
    return {name: value for name, value in body.items() if name not in known}


def refuse_others(body: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise ApiError for a field of `only` that says something else than its values there."""
    for name in sorted(body.keys() & only.keys()):
        given, allowed = body[name], only[name]
        if given is not None and not _among(given, allowed):
            raise ApiError(
                400,
                f"{name} is not supported" + _allowed(allowed),
                param=name,
                code="unsupported_parameter",
            )


def _among(given: Any, allowed: tuple[Any, ...]) -> bool:
    # bool is an int in Python, but `best_of: true` is not 1.
    return any(given == a and isinstance(given, bool) == isinstance(a, bool) for a in allowed)


def _allowed(allowed: tuple[Any, ...]) -> str:
    if not allowed:
        return "; leave it out"
    return "; leave it out or send " + " or ".join(
        pydantic_core.to_json(value).decode() for value in allowed
    )
