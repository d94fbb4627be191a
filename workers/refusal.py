"""What an engine refuses for the methods it holds, known before it is asked."""

from collections.abc import Sequence

from schemas import MethodSpec, SamplingParams


def refused_field(portfolio: Sequence[MethodSpec], sampling: SamplingParams) -> str | None:
    """The field of `sampling` that an engine which holds `portfolio` does not obey, or None.

    vLLM takes neither min_p nor logit_bias where it speculates, and it speculates for all of an
    engine's requests or for none, so that one method with a drafter speaks for all beside it.
    """
    if not any(spec.engine == "vllm" and spec.drafter != "none" for spec in portfolio):
        return None
    if sampling.logit_bias:
        return "logit_bias"
    return "min_p" if sampling.min_p > 0.0 and sampling.temperature > 0.0 else None
