"""Our sampling parameters as vLLM's."""

from collections.abc import Collection

from vllm import SamplingParams as VllmSamplingParams
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

from schemas import DecodeRequest
from workers.grammar.specification import lark
from workers.methods import KEPT_KEY, METHOD_KEY
from workers.vllm_engine.drafting.portfolio import PREDICTED, REQUEST, SCOPE


def sampling_params(request: DecodeRequest, eos: Collection[int]) -> VllmSamplingParams:
    """Return vLLM's parameters for a request whose grammar compiles.

    We decode text and find stop strings; vLLM sends token ids only.
    """
    given = request.sampling
    grammar, answered = given.grammar, len(request.answered_token_ids)
    return VllmSamplingParams(
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        min_p=given.min_p,
        logit_bias=given.logit_bias or None,
        presence_penalty=given.presence_penalty,
        frequency_penalty=given.frequency_penalty,
        repetition_penalty=given.repetition_penalty,
        logprobs=given.logprobs,
        prompt_logprobs=None if answered else given.prompt_logprobs,
        seed=request.seed,
        max_tokens=given.max_tokens - answered,
        min_tokens=max(0, given.min_tokens - answered),
        stop_token_ids=sorted(given.ends(eos)) or None,
        ignore_eos=given.ignore_eos,
        structured_outputs=grammar and StructuredOutputsParams(grammar=lark(grammar)),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args={
            METHOD_KEY: request.method,
            REQUEST: request.request_id,
            SCOPE: request.scope,
            KEPT_KEY: request.kept,
            **({PREDICTED: request.predicted_token_ids} if request.predicted_token_ids else {}),
        },
    )
