"""An answer on its way to the client, and the observation made of it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from deployments.request.calls import Chunks
from deployments.request.conversation import origin_of
from deployments.request.prompt import Prompt
from schemas import Decision, DecodeChunk, DecodeStats, Observation, Sample


@dataclass
class Answer:
    """Stream an answer whose first chunk has arrived. `method` is the method that answers.

    vector: the prompt's packed vector, on one of the prompt's answers. chunks: what to read.
    source: where the chunks come from. degraded: what was missing when the prompt was routed
    (`no-encoder`, `no-feedback`, `stale-table`). earlier_tokens: tokens emitted by a method that
    then failed. stats: of the method that finished the answer.
    """

    request_id: str
    method: str
    reason: str
    decision: Decision
    vector: bytes | None
    degraded: tuple[str, ...]
    routing_seconds: float
    source: Chunks
    chunks: Chunks = field(init=False)
    stats: DecodeStats | None = None
    earlier_tokens: int = 0

    def goes_on(self, method: str, earlier_tokens: int) -> None:
        """Record that another method continues the answer after a failure."""
        self.method, self.reason = method, "failover"
        self.earlier_tokens = earlier_tokens

    async def close(self) -> None:
        """End the answer and the work on it, whether or not anything was read."""
        await self.chunks.aclose()
        # a generator that was never started does not close what it reads from
        await self.source.aclose()


def silenced(chunk: DecodeChunk) -> DecodeChunk:
    """Return a chunk of a prompt that is only read, without the token that was emitted."""
    said = {"text": "", "token_ids": (), "drafted": (), "logprobs": ()}
    if chunk.stats is None:
        return chunk.model_copy(update=said)
    stats = chunk.stats.model_copy(update={"output_tokens": 0})
    return chunk.model_copy(update={**said, "finish_reason": "length", "stats": stats})


def observation_of(answer: Answer, stats: DecodeStats, prompt: Prompt) -> Observation:
    """Return the observation of a finished answer to a prompt."""
    made = cut_observation_of(answer.decision, stats, prompt)
    return made.model_copy(update={"reason": answer.reason, "vector": answer.vector})


def cut_observation_of(decision: Decision, stats: DecodeStats, prompt: Prompt) -> Observation:
    """Return the observation of an answer that was cut off. The prompt's vector stays out, because
    another method may still answer it."""
    return Observation(
        stats=stats,
        cluster=decision.cluster,
        fit_id=decision.fit_id,
        table_version=decision.table_version,
        policy=decision.policy,
        reason=decision.reason if stats.method == decision.method else "failover",
        propensity=decision.propensity,
        choices=prompt.choices,
        foretold=decision.foretold.get(stats.method),
        free_to_end=prompt.sampling.free_to_end,
        grammar=prompt.sampling.grammar is not None,
        time=time.time(),
    )


def sample_of(answer: Answer, prompt: Prompt, token_ids: Sequence[int], owner: str) -> Sample:
    """Return the sample of a finished answer with these tokens."""
    return Sample(
        id=answer.request_id,
        conversation=origin_of(prompt.messages, prompt.token_ids),
        owner=owner,
        fit_id=answer.decision.fit_id,
        cluster=answer.decision.cluster,
        method=answer.method,
        temperature=prompt.sampling.temperature,
        prompt_token_ids=prompt.token_ids,
        answer_token_ids=tuple(token_ids),
        time=time.time(),
    )
