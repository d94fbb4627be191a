"""The service's metrics, exported by Ray on every node's metrics port; docs/operations.md lists
them.

The number of series stays small. A table has up to 64 clusters, so only a few counters have a
cluster label. Histograms have none: they make a dozen series for every set of labels.
"""

from collections.abc import Mapping

from ray.util.metrics import Counter, Gauge, Histogram

from schemas import Decision, DecodeStats, DriftReport, LoadReport

_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]
_STEP_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.25, 0.5, 1.0]
_TOKENS_PER_SECOND = [5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0]
_SEQUENCES = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0]

MAX_KEYS = 1000
OTHER_KEYS = "others"


class Metrics:
    """Hold one ingress's metrics; Ray adds the node and the process."""

    def __init__(self) -> None:
        self.requests = _counter(
            "requests",
            "answers by who gave them, why and how they ended",
            ("method", "reason", "outcome"),
        )
        self.refused = _counter("refused", "requests without an answer", ("status",))
        self.decisions = _counter("decisions", "choices of the policy", ("method", "reason"))
        self.prompts = _counter("prompts", "by their cluster and the method chosen", _BY_CLUSTER)
        self.exploration_seconds = _counter(
            "exploration_seconds", "predicted, more than without exploring", ("method",)
        )
        self.predicted_seconds = _counter(
            "predicted_seconds", "of the methods that were chosen", ("method",)
        )
        self.decision = _histogram("decision_seconds", "embedding and choosing", _SECONDS, ())
        self.degraded = _counter("degraded", "prompts routed in a degraded mode", ("mode",))
        self.first_chunk = _histogram("first_chunk_seconds", "request to first chunk", _SECONDS)

        self.output_tokens = _counter("output_tokens", "tokens of finished answers")
        self.drafted_tokens = _counter("drafted_tokens", "tokens drafted for finished answers")
        self.accepted_tokens = _counter("accepted_tokens", "drafted tokens that were kept")
        self.target_steps = _counter("target_steps", "target forwards that emitted")
        self.ttft = _histogram("ttft_seconds", "engine's request to first token", _SECONDS)
        self.tpot = _histogram("tpot_seconds", "per token after the first", _STEP_SECONDS)
        self.queue = _histogram("queue_seconds", "engine's request to admission", _SECONDS)
        self.step = _histogram("step_seconds", "per step after the first token", _STEP_SECONDS)
        self.batch = _histogram("batch_sequences", "mean batch over the steps", _SEQUENCES)
        self.tokens_per_second = _histogram(
            "tokens_per_second", "output tokens over the engine's seconds", _TOKENS_PER_SECOND
        )

        self.settings_refused = _gauge(
            "settings_refused", "1 while the last user_config was refused, else 0"
        )

        self.circuit_state = _gauge("circuit_state", "0 closed, 1 half-open, 2 open", ("method",))
        self.table_version = _gauge("table_version", "of the routing table in force")
        self.observations_waiting = _gauge(
            "observations_waiting", "not yet acknowledged by the store"
        )
        self.learning = _gauge("learning", "1 while answers are learned from and stored, else 0")

    def decided(self, decision: Decision, seconds: float, degraded: tuple[str, ...]) -> None:
        """Count a routed prompt. seconds: the decision took. degraded: its degraded modes."""
        self.decision.observe(seconds)
        method = {"method": decision.method}
        self.decisions.inc(tags=method | {"reason": decision.reason})
        self.prompts.inc(tags=method | {"cluster": str(decision.cluster)})
        for mode in degraded:
            self.degraded.inc(tags={"mode": mode})
        for counter, predicted in (
            (self.predicted_seconds, decision.predicted_seconds[decision.method]),
            (self.exploration_seconds, decision.exploration_seconds),
        ):
            if predicted > 0.0:
                counter.inc(predicted, tags=method)

    def finished(self, stats: DecodeStats, cluster: int) -> None:
        """Count a finished answer of a cluster."""
        tags = {"method": stats.method}
        for counter, count in (
            (self.output_tokens, stats.output_tokens),
            (self.drafted_tokens, stats.drafted_tokens),
            (self.accepted_tokens, stats.accepted_tokens),
            (self.target_steps, stats.target_steps),
        ):
            if count:
                counter.inc(count, tags=tags | {"cluster": str(cluster)})
        self.ttft.observe(stats.first_token_seconds, tags=tags)
        self.queue.observe(stats.queue_seconds, tags=tags)
        self.batch.observe(stats.mean_batch, tags=tags)
        if stats.output_tokens > 1:
            self.tpot.observe(stats.decode_seconds / (stats.output_tokens - 1), tags=tags)
        if stats.target_steps > 1:
            self.step.observe(stats.decode_seconds / (stats.target_steps - 1), tags=tags)
        if stats.total_seconds > 0.0:
            speed = stats.output_tokens / stats.total_seconds
            self.tokens_per_second.observe(speed, tags=tags)


class KeyMetrics:
    """Count what each API key has used, by its name in the keys file."""

    def __init__(self) -> None:
        labels = ("key", "tenant")
        self.requests = _counter("key_requests", "requests that were taken", labels)
        self.prompt_tokens = _counter("key_prompt_tokens", "tokens of prompts", labels)
        self.cached_tokens = _counter(
            "key_cached_tokens", "of the prompts' tokens, those not computed again", labels
        )
        self.output_tokens = _counter("key_output_tokens", "tokens answered", labels)
        self._known: set[str] = set()

    def used(self, key: str, tenant: str | None, prompt: int, cached: int, output: int) -> None:
        """Count a key's finished request.

        After MAX_KEYS names the others share one series, so that a file that changes for months
        does not make ever more of them.
        """
        if key not in self._known and len(self._known) >= MAX_KEYS:
            key, tenant = OTHER_KEYS, None
        self._known.add(key)
        tags = {"key": key, "tenant": tenant or ""}
        self.requests.inc(tags=tags)
        for counter, count in (
            (self.prompt_tokens, prompt),
            (self.cached_tokens, cached),
            (self.output_tokens, output),
        ):
            if count:
                counter.inc(count, tags=tags)


class DriftMetrics:
    """Hold the feedback actor's metric of drift."""

    def __init__(self) -> None:
        self.drift = _gauge("drift", "least share of recent prompts of a kind not fitted")

    def reported(self, report: DriftReport) -> None:
        self.drift.set(report.share_farther or 0.0)


class ReplicaMetrics:
    """Export one replica's load, as it reports it to the ingresses."""

    def __init__(self, replica: str) -> None:
        self._tags = {"replica": replica}
        keys = ("replica",)
        self.running = _gauge("replica_running", "sequences that are decoded", keys)
        self.waiting = _gauge("replica_waiting", "sequences in the waiting line", keys)
        self.outstanding_tokens = _gauge(
            "replica_outstanding_tokens", "expected of its requests and not yet decoded", keys
        )
        self.free_slots = _gauge("replica_free_slots", "free tokens of the KV pool", keys)
        self.drafter_failures = _counter(
            "replica_drafter_failures",
            "after which sequences went on without drafts",
            ("replica", "drafter"),
        )
        self._failures: Mapping[str, int] = {}
        by_version = ("replica", "part", "version")
        self.head_steps = _counter("replica_head_steps", "steps by the head's version", by_version)
        self.head_tokens = _counter("replica_head_tokens", "tokens of these steps", by_version)
        self._heads: dict[tuple[str, int], tuple[int, int]] = {}

    def reported(self, load: LoadReport) -> None:
        self.running.set(load.running, tags=self._tags)
        self.waiting.set(load.waiting, tags=self._tags)
        self.outstanding_tokens.set(load.outstanding_tokens, tags=self._tags)
        self.free_slots.set(load.free_slots, tags=self._tags)
        for drafter, failures in load.drafter_failures.items():
            if more := failures - self._failures.get(drafter, 0):
                self.drafter_failures.inc(more, tags=self._tags | {"drafter": drafter})
        self._failures = load.drafter_failures
        counted, self._heads = self._heads, {}
        for heads in load.heads:
            steps, tokens = counted.get((heads.part, heads.version), (0, 0))
            tags = self._tags | {"part": heads.part, "version": str(heads.version)}
            if more := heads.steps - steps:
                self.head_steps.inc(more, tags=tags)
            if more := heads.tokens - tokens:
                self.head_tokens.inc(more, tags=tags)
            self._heads[heads.part, heads.version] = heads.steps, heads.tokens


_BY_CLUSTER = ("method", "cluster")


def _counter(name: str, description: str, labels: tuple[str, ...] = _BY_CLUSTER) -> Counter:
    return Counter(f"specadapt_{name}", description=description, tag_keys=labels)


def _gauge(name: str, description: str, labels: tuple[str, ...] = ()) -> Gauge:
    return Gauge(f"specadapt_{name}", description=description, tag_keys=labels)


def _histogram(
    name: str, description: str, boundaries: list[float], labels: tuple[str, ...] = ("method",)
) -> Histogram:
    return Histogram(
        f"specadapt_{name}", description=description, boundaries=boundaries, tag_keys=labels
    )
