"""An answer on its way to the client, and what is learned from it."""

import time
from dataclasses import dataclass, field

from deployments.request.calls import Chunks
from schemas import Decision, DecodeStats, Instead, Observation


@dataclass
class Answer:
    """An answer whose first chunk is there; `method` is the one that really answers.

    `vector`: the prompt's, packed, on one of a prompt's answers. `chunks` is to be read, `source`
    is where they come from. `degraded`: what was missing when it was routed (`no-encoder`,
    `no-feedback`, `stale-table`). `earlier_tokens`: tokens that a method emitted which then failed;
    `stats` are those of the one that went on.
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
        """Another method answers now, behind the tokens that are out."""
        self.method, self.reason = method, "failover"
        self.earlier_tokens = earlier_tokens

    async def close(self) -> None:
        """End the answer and the work on it, whether or not anything was read."""
        await self.chunks.aclose()
        # a generator that was never started does not close what it reads from
        await self.source.aclose()


def observation_of(answer: Answer, stats: DecodeStats, choices: int) -> Observation:
    """What the feedback actor is told of a finished answer, one of so many to its prompt."""
    decision = answer.decision
    return Observation(
        stats=stats,
        cluster=decision.cluster,
        fit_id=decision.fit_id,
        table_version=decision.table_version,
        policy=decision.policy,
        reason=answer.reason,
        propensity=decision.propensity,
        choices=choices,
        foretold=decision.foretold.get(stats.method),
        instead=_instead(decision, answer.method),
        time=time.time(),
        vector=answer.vector,
    )


def _instead(decision: Decision, served: str) -> Instead | None:
    """What routing would have chosen, where the default answered in its stead."""
    wish, predicted = decision.instead_of, decision.predicted_seconds
    if wish is None or served != decision.method or not predicted[wish] * predicted[served]:
        return None
    return Instead(
        method=wish,
        predicted_seconds=predicted[wish],
        served_predicted_seconds=predicted[served],
    )
