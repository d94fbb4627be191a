"""Sampling fields that an engine refuses because of its methods."""

from collections.abc import Sequence

from schemas import MethodSpec, SamplingParams


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
