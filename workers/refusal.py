"""Requests that an engine refuses because of its methods."""

from collections.abc import Sequence

from schemas import MethodSpec, SamplingParams

PAST_ANSWERS = "max_cached_requests"
"""Setting of vLLM's suffix drafter: how many past answers of any scope it drafts from."""


def refused_field(portfolio: Sequence[MethodSpec], sampling: SamplingParams) -> str | None:
    """Return the field of `sampling` that an engine with `portfolio` refuses, or None.

    vLLM takes neither min_p nor logit_bias where it speculates, and one method with a drafter
    makes it speculate for all of the engine's requests.
    """
    if not any(spec.engine == "vllm" and spec.drafter != "none" for spec in portfolio):
        return None
    if sampling.logit_bias:
        return "logit_bias"
    return "min_p" if sampling.min_p > 0.0 and sampling.temperature > 0.0 else None


def refused_draft(spec: MethodSpec, max_draft_tokens: int | None) -> str | None:
    """Return the field by which a request bounds its drafts, if the method's engine cannot, else
    None. vLLM fixes the length of drafts when it starts."""
    speculates = spec.engine == "vllm" and spec.drafter != "none"
    return "speculation" if speculates and max_draft_tokens is not None else None


def keeps_every_answer(spec: MethodSpec, *, elsewhere: bool) -> bool:
    """Return whether a method drafts from the past answers of all requests, as vLLM's suffix
    drafter does. elsewhere: its engine is a server that our settings do not reach."""
    keeps_none = spec.settings.get("drafter", {}).get(PAST_ANSWERS) == 0 and not elsewhere
    return (spec.engine, spec.drafter) == ("vllm", "suffix") and not keeps_none
