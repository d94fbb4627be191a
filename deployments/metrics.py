"""What the ingress counts; exported by Ray on every node's metrics port."""

from ray.util.metrics import Counter, Gauge, Histogram

_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]


class Metrics:
    """One ingress's metrics; Ray adds the node and the process."""

    def __init__(self) -> None:
        self.requests = Counter(
            "specadapt_requests",
            description="prompts by the method that answered, cluster, reason and outcome",
            tag_keys=("method", "cluster", "reason", "outcome"),
        )
        self.refused = Counter(
            "specadapt_refused", description="requests without an answer", tag_keys=("status",)
        )
        self.output_tokens = Counter(
            "specadapt_output_tokens", description="tokens answered", tag_keys=("method",)
        )
        self.degraded = Counter(
            "specadapt_degraded", description="prompts routed without an embedding"
        )
        self.first_chunk = Histogram(
            "specadapt_first_chunk_seconds",
            description="request to first chunk at the ingress",
            boundaries=_SECONDS,
            tag_keys=("method",),
        )
        self.decision = Histogram(
            "specadapt_decision_seconds",
            description="embedding and choosing",
            boundaries=_SECONDS,
        )
        self.observations_waiting = Gauge(
            "specadapt_observations_waiting", description="not yet acknowledged by the store"
        )
