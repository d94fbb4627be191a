"""One request while vLLM answers it: its parameters, its steps and its state."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer
from vllm import SamplingParams as VllmSamplingParams
from vllm.logprobs import Logprob
from vllm.outputs import PoolingRequestOutput, RequestOutput
from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams
from vllm.v1.engine import async_llm
from vllm.v1.engine.output_processor import RequestOutputCollector

from schemas import DecodeChunk, DecodeRequest, DrafterStats, FinishReason, TokenLogprobs
from workers.drafting.controller import NOBODY, PREDICTION
from workers.engine import RequestFaultError
from workers.engine_load import EngineLoad, ScheduledAnswer, by_position
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.specification import lark
from workers.methods import KEPT_KEY, METHOD_KEY
from workers.vllm_engine.drafting.portfolio import PREDICTED, REQUEST, SCOPE
from workers.vllm_engine.requirements import COLLECTOR, refuse_changes


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


FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "abort": "cancelled"}


class AnswerError(RuntimeError):
    """vLLM returned something that is not a response to the request."""


class VllmAnswer(ScheduledAnswer):
    """Build a request's text and statistics from the steps of an engine."""

    def __init__(
        self, request: DecodeRequest, tokenizer: Tokenizer, eos: Collection[int], load: EngineLoad
    ) -> None:
        super().__init__(request, tokenizer, eos, load)
        self.finished: FinishReason | None = None
        self.head_versions: Callable[[], dict[str, int]] = dict
        """By part, the version of the head that drafted."""
        self._eos = frozenset(eos) - set(request.sampling.stop_token_ids)
        self._accepted = 0
        self._by_step: list[tuple[int, int]] = []
        """Drafted and accepted tokens of the steps that verified drafts, told at the end."""

    def step(self, output: RequestOutput) -> DecodeChunk:
        """Return the chunk of one engine step; the last one carries the statistics."""
        completion = output.outputs[0]
        tokens = list(completion.token_ids)
        if completion.finish_reason is not None:
            self.finished = FINISH.get(completion.finish_reason, "error")
        metrics = completion.spec_decode_metrics
        if metrics is not None:
            self._by_step = list(
                zip(metrics.per_step_drafted, metrics.per_step_accepted, strict=True)
            )
        accepted = self._accepted_of(len(tokens))
        if tokens:
            if not self._steps:
                self._begin(output)
            self._stepped()
            self._accepted += accepted
        kept, text = self._text.push(tokens)
        self.tokens.extend(tokens[:kept])
        if self._text.ended:
            self.finished = "stop"
        if self.finished is not None:
            text += self._text.flush()
        return DecodeChunk(
            request_id=self.request.request_id,
            text=text,
            token_ids=tuple(tokens[:kept]),
            drafted=tuple(position < accepted for position in range(kept)),
            logprobs=_logprobs(completion.token_ids, completion.logprobs)[:kept],
            prompt_logprobs=_prompt_logprobs(output),
            cached_prompt_tokens=self._cached,
            finish_reason=self.finished,
            stats=None if self.finished is None else self.stats(self.finished),
        )

    def _begin(self, output: RequestOutput) -> None:
        self._cached = output.num_cached_tokens or 0
        if output.metrics is not None:
            self._queued = max(0.0, output.metrics.scheduled_ts - output.metrics.queued_ts)

    def follow(self, matcher: AnswerMatcher) -> None:
        """Raise RequestFaultError if an ended answer does not satisfy its grammar.

        vLLM fails a request whose grammar it cannot follow, and ends it where llguidance finds
        no next token. The matcher is still at the response's beginning.
        """
        if self.finished == "error":
            raise RequestFaultError(
                f"grammar: vLLM could not follow it after {self.output_tokens} tokens"
            )
        if self.finished == "stop" and self.tokens[-1] in self._eos:
            matcher.advance(self.tokens[self.prompt_tokens : -1])
            if not matcher.ended:
                raise RequestFaultError(
                    f"grammar: no token may follow after {self.output_tokens - 1} tokens"
                )

    def _counts(self, seconds: float) -> dict[str, Any]:
        drafted, accepted = [told for told, _ in self._by_step], self._accepted_by_step()
        return super()._counts(seconds) | {
            "drafted_tokens": sum(drafted),
            "accepted_tokens": sum(accepted),
            **by_position([*zip(drafted, accepted, strict=True)]),
            "head_versions": self.head_versions(),
        }

    def by_drafter(self, last: DecodeChunk, authors: Sequence[str]) -> DecodeChunk:
        """Return the last chunk with statistics by drafter.

        authors: the drafter of each decode step, including steps the engine was ahead when a
        stop string ended the response.
        """
        decode_steps = max(0, self._steps - 1)
        authors = authors[:decode_steps]
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        idle = decode_steps - len(authors)
        counts[NOBODY].update(steps=idle, drafted_tokens=0, accepted_tokens=0)
        drafted = [drafted for drafted, _ in self._by_step]
        tokens = iter(zip(drafted, self._accepted_by_step(), strict=True))
        for author in authors:
            more, kept = (0, 0) if author == NOBODY else next(tokens, (0, 0))
            counts[author].update(steps=1, drafted_tokens=more, accepted_tokens=kept)
        by_drafter = {n: DrafterStats(**told) for n, told in counts.items() if told["steps"]}
        assert last.stats is not None
        stats = last.stats.model_copy(
            update={
                "by_drafter": by_drafter,
                "drafted_prediction_tokens": counts[PREDICTION]["drafted_tokens"],
                "accepted_prediction_tokens": counts[PREDICTION]["accepted_tokens"],
            }
        )
        return last.model_copy(update={"stats": stats})

    def _accepted_by_step(self) -> list[int]:
        """Count the steps that verified drafts, without tokens accepted beyond the response's
        end."""
        accepted = [accepted for _, accepted in self._by_step]
        if accepted:
            accepted[-1] -= sum(accepted) - self._accepted
        return accepted

    def _accepted_of(self, emitted: int) -> int:
        """Return how many of a step's tokens were drafted: all but its last, which is the
        target's.

        A response's last step may have been cut before that one; the engine's own count tells.
        """
        if self.finished is None or not self._by_step:
            return max(0, emitted - 1)
        return min(emitted, sum(accepted for _, accepted in self._by_step) - self._accepted)


def _prompt_logprobs(output: RequestOutput) -> tuple[TokenLogprobs, ...]:
    """Return the log probabilities of the prompt's tokens after the first, which vLLM sends with
    the first ones of the response."""
    if not output.prompt_logprobs or output.prompt_token_ids is None:
        return ()
    return _logprobs(output.prompt_token_ids[1:], output.prompt_logprobs[1:])


def _logprobs(
    tokens: Sequence[int], logprobs: Sequence[Mapping[int, Logprob] | None] | None
) -> tuple[TokenLogprobs, ...]:
    if logprobs is None:
        return ()
    result = []
    for token, entries in zip(tokens, logprobs, strict=True):
        if not entries or token not in entries:
            raise AnswerError(f"no log probability came with token {token}")
        ranked = sorted(entries.items(), key=lambda item: item[1].rank or 0)
        top = [(i, entry.logprob) for i, entry in ranked]
        result.append(TokenLogprobs(chosen=entries[token].logprob, top=tuple(top)))
    return tuple(result)


class StepCollector(RequestOutputCollector):
    """Collect each engine step apart. vLLM's collector joins unread steps, but only a step's own
    tokens tell how many of them were drafted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps: deque[RequestOutput | PoolingRequestOutput | Exception] = deque()

    def put(self, output: RequestOutput | PoolingRequestOutput | Exception) -> None:
        self._steps.append(output)
        self.ready.set()

    async def get(self) -> RequestOutput | PoolingRequestOutput:
        while (output := self.get_nowait()) is None:
            self.ready.clear()
            await self.ready.wait()
        return output

    def get_nowait(self) -> RequestOutput | PoolingRequestOutput | None:
        output = self._steps.popleft() if self._steps else None
        if isinstance(output, Exception):
            raise output
        return output


def collect_steps() -> None:
    """Make every AsyncLLM of this process use StepCollector; vLLM has no argument for it. Raises
    RuntimeError if this vLLM collects in another way."""
    refuse_changes("statistics per step", COLLECTOR)
    async_llm.RequestOutputCollector = StepCollector
