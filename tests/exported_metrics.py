"""The service's metrics by the names that Prometheus has for them."""

from collections.abc import Iterator

from ray.util.metrics import Counter, Histogram, Metric

from deployments.metrics import DriftMetrics, KeyMetrics, Metrics, ReplicaMetrics


def series() -> Iterator[tuple[str, Metric]]:
    """Yield each name and its metric; a histogram has three."""
    owners = (Metrics(), KeyMetrics(), ReplicaMetrics("a"), DriftMetrics())
    for metric in (part for owner in owners for part in vars(owner).values()):
        if isinstance(metric, Metric):
            kinds = {Counter: ("_total",), Histogram: ("_bucket", "_sum", "_count")}
            for suffix in kinds.get(type(metric), ("",)):
                yield f"ray_{metric.info['name']}{suffix}", metric


def labels() -> dict[str, set[str]]:
    """Return the labels of each name."""
    return {
        name: {*metric.info["tag_keys"], *(["le"] if name.endswith("_bucket") else [])}
        for name, metric in series()
    }
