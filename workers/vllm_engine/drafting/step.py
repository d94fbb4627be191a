"""A step of vLLM's model runner, as drafters see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from workers.methods import KEPT_KEY, METHOD_KEY
from workers.vllm_engine.drafting.portfolio import PREDICTED, REQUEST, SCOPE

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu_input_batch import CachedRequestState
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner


@dataclass(frozen=True)
class Step:
    """The arguments of GPUModelRunner.propose_draft_token_ids.

    sampled: each row's new tokens, none before its prompt is read. hidden_states [tokens, width]
    and aux_hidden_states (of other layers) cover every token of the step, sample_hidden_states
    those with logits.
    """

    runner: GPUModelRunner
    scheduled: SchedulerOutput
    sampled: list[list[int]]
    sampling_metadata: SamplingMetadata
    hidden_states: torch.Tensor
    sample_hidden_states: torch.Tensor
    aux_hidden_states: list[torch.Tensor] | None
    spec_decode_metadata: SpecDecodeMetadata | None

    def methods(self) -> list[str | None]:
        """Return the method that each row's request names; vLLM's server lets them name
        anything."""
        rows = range(len(self.runner.input_batch.req_ids))
        named = (self._extra(row).get(METHOD_KEY) for row in rows)
        return [name if isinstance(name, str) else None for name in named]

    def request(self, row: int) -> str:
        """Return the id of a row's request."""
        return self.runner.input_batch.req_ids[row]

    def verified(self, row: int) -> int:
        """Return how many tokens of a row the target has read: one and its draft, or some of its
        prompt."""
        return int(self.scheduled.num_scheduled_tokens[self.request(row)])

    def gone(self, known: Iterable[str]) -> list[str]:
        """Return the known requests that have ended. vLLM reports an end in a step that drafts
        only if others are running, so the runner's own list counts too."""
        running, ended = self.runner.requests, self.scheduled.finished_req_ids
        return [request for request in known if request in ended or request not in running]

    def greedy(self, row: int) -> bool:
        """Return whether a row's request has temperature 0."""
        params = self._params(row)
        return params is None or params.temperature == 0.0

    def asked(self, row: int) -> tuple[str, str]:
        """Return the row's request id as the caller gave it, and its scope. A request that names
        none has a scope of its own, so that no other looks up its response."""
        extra = self._extra(row)
        scope = extra.get(SCOPE)
        return str(extra.get(REQUEST, "")), scope if isinstance(scope, str) else self.request(row)

    def kept(self, row: int) -> bool:
        """Return whether later answers may look a row's answer up."""
        return self._extra(row).get(KEPT_KEY, True) != 0  # from a server's JSON, it may be a number

    def predicted(self, row: int) -> Sequence[int]:
        """Return the tokens that a row's request predicts; none if they are not all tokens of the
        target's, since a draft of others would end the engine."""
        tokens, words = self._extra(row).get(PREDICTED), self.runner.input_batch.vocab_size
        if not isinstance(tokens, list | tuple):
            return ()
        return tokens if all(type(one) is int and 0 <= one < words for one in tokens) else ()

    def drafted(self) -> list[int]:
        """Return how many draft tokens of each row the target has verified."""
        if self.spec_decode_metadata is None:
            return [0] * len(self.sampled)
        return self.spec_decode_metadata.num_draft_tokens

    def read(self, row: int) -> range:
        """Return which tokens of its sequence a row has read in this step, without rejected ones.
        The last sampled token is the target's own, and is not read yet."""
        begin, drafted = self._request(row).num_computed_tokens, self.drafted()[row]
        rejected = drafted + 1 - len(self.sampled[row]) if drafted else 0
        return range(begin, begin + self.verified(row) - rejected)

    def length(self, row: int) -> int:
        """Return the length of a row's sequence with its new tokens."""
        return int(self.runner.input_batch.num_tokens_no_spec[row])

    def tokens(self, row: int, since: int) -> list[int]:
        """Return a row's tokens, new ones included, from an index on."""
        known = self.runner.input_batch.token_ids_cpu[row, since : self.length(row)]
        return [int(token) for token in known]

    def prompt_tokens(self, row: int) -> int:
        """Return the length of a row's prompt."""
        return int(self.runner.input_batch.num_prompt_tokens[row])

    def _extra(self, row: int) -> Mapping[str, Any]:
        params = self._params(row)
        return params.extra_args if params and params.extra_args else {}

    def _params(self, row: int) -> SamplingParams | None:
        return self._request(row).sampling_params

    def _request(self, row: int) -> CachedRequestState:
        return self.runner.requests[self.request(row)]
