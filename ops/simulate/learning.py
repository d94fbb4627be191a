"""What a simulated service learns while it runs: its answers, told to the learner that serves."""

from collections.abc import Sequence

from deployments.request.progress import Progress
from ops.load.policies import Routed
from ops.simulate.workload import NEVER, Request
from router.learner import Learner
from router.replica_loads import ReplicaLoads
from schemas import (
    Decision,
    DecodeRequest,
    DecodeStats,
    LoadReport,
    Observation,
    RouterConfig,
)


class Learning:
    """A router that learns. Tables come from the learner with the first request after a flush is
    due, as they would from the feedback actor."""

    def __init__(self, policy: Routed, config: RouterConfig, flush_seconds: float) -> None:
        self.policy = policy
        self.learner = Learner(policy.table, config)
        self._flush_seconds, self._flushed = flush_seconds, 0.0
        self.runs = 0
        """Of services that it has learned from, the present one included: each counts its requests
        from 0."""
        self._waiting: list[Observation] = []

    def ordered(self, now: float, request: Request, loads: ReplicaLoads) -> Sequence[str]:
        """The methods to ask for it, the first choice first."""
        if now - self._flushed >= self._flush_seconds:
            self.flush(now)
        line = self.policy(request.question, loads)
        request.decision = self.policy.decision
        return line

    def flush(self, now: float) -> None:
        """Route with what was learned from all answers until now."""
        self._flushed = now
        if self.learner.observe(self._waiting):
            self.policy.table = self.learner.table
        self._waiting = []

    def ended(self, now: float, request: Request, method: str) -> None:
        """Learn from an answer of this method that has its last token."""
        decision = request.decision
        assert decision is not None
        stats = stats_of(now, request, method, f"{self.runs}-{request.number}")
        self.policy.trials.settle(self.policy.table, decision, stats)
        self._observe(now, decision, stats)

    def cut(
        self, now: float, request: Request, sent: DecodeRequest, report: LoadReport | None
    ) -> None:
        """Learn from an answer that is cut off, as far as it came.

        report: the last one of its replica.
        """
        decision = request.decision
        assert decision is not None
        progress = Progress(
            sent.model_copy(update={"request_id": f"{self.runs}-{request.number}"}), request.handed
        )
        if request.first != NEVER:
            progress.first, progress.last = request.first, now
            progress.later_tokens, progress.steps = request.path.tokens - 1, request.path.steps
        stats = progress.cut(now, report)
        if stats is None:
            return
        if decision.reason == "exploration":
            self.policy.trials.settle(self.policy.table, decision, stats)
        self._observe(now, decision, stats)

    def _observe(self, now: float, decision: Decision, stats: DecodeStats) -> None:
        self._waiting.append(
            Observation(
                stats=stats,
                cluster=decision.cluster,
                fit_id=decision.fit_id,
                table_version=decision.table_version,
                policy=decision.policy,
                reason=decision.reason if stats.method == decision.method else "failover",
                propensity=decision.propensity,
                foretold=decision.foretold.get(stats.method),
                time=now,
            )
        )


def stats_of(now: float, request: Request, method: str, request_id: str) -> DecodeStats:
    """What the engine would say of an answer that has its last token now."""
    path, features = request.path, request.question.features
    said = request.said + path.tokens
    batch_steps = request.batch_steps if path.steps else {}
    return DecodeStats(
        request_id=request_id,
        method=method,
        temperature=features.temperature,
        prompt_tokens=features.prompt_tokens,
        cached_prompt_tokens=request.held,
        output_tokens=path.tokens,
        context_length=request.prompt + path.tokens,
        target_steps=path.steps + 1,
        queue_seconds=request.admitted - request.handed,
        first_token_seconds=request.first - request.handed,
        decode_seconds=now - request.first,
        stalled_seconds=max(0.0, request.stalled_seconds),
        total_seconds=now - request.handed,
        mean_batch=sum(batch_steps.values()) / path.steps if path.steps else 1.0,
        batch_by_method={name: n / max(1, path.steps) for name, n in batch_steps.items()},
        finish_reason="length" if said >= features.max_tokens else "stop",
    )
