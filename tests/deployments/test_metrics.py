"""The metrics of the code and those of docs/operations.md are the same, and they are counted."""

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from asking import answered, prompt, spoken
from exported_metrics import series
from observations import load, observation
from ray.util.metrics import Counter, Histogram

from deployments.head_training.canaries import SUMS
from deployments.metrics import MAX_KEYS, KeyMetrics, Metrics, ReplicaMetrics
from schemas import HeadCounts, Reason

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
ROW = re.compile(r"^\| `(ray_specadapt_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", re.M)


def in_code():
    """Name as Ray exports it -> (kind, labels)."""
    return {
        name.removesuffix("_bucket"): (
            type(metric).__name__.lower(),
            frozenset(metric.info["tag_keys"]),
        )
        for name, metric in series()
        if not isinstance(metric, Histogram) or name.endswith("_bucket")
    }


def test_the_page_lists_every_metric_with_its_kind_and_labels():
    rows = ROW.findall(PAGE.read_text())
    listed = {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows
    }
    assert listed == in_code()
    assert len(rows) == len(listed)


def test_the_page_asks_only_for_metrics_that_are_there():
    code = in_code()
    for asked in re.findall(r"ray_specadapt_\w+", PAGE.read_text()):
        assert asked.removesuffix("_bucket") in code, asked


def test_an_ingress_has_few_series_however_many_clusters_there_are():
    values = {
        "method": 6,
        "cluster": 65,
        "reason": len(get_args(Reason)) + 1,
        "outcome": 6,
        "temperature_band": 3,
        "status": 12,
        "mode": 3,
    }
    series = 0
    for metric in vars(Metrics()).values():
        sets = math.prod(values[label] for label in metric.info["tag_keys"])
        buckets = len(metric.boundaries) + 3 if isinstance(metric, Histogram) else 1
        series += sets * buckets
    assert series < 5000


class Record:
    """In the place of all metrics: what they were told, by name."""

    def __init__(self, monkeypatch):
        self.told = {}
        for kind, call in ((Counter, "inc"), (Histogram, "observe")):
            monkeypatch.setattr(kind, call, self._noting(call == "inc"))

    def _noting(self, counter):
        def note(metric, value=1.0, tags=None):
            key = (metric.info["name"].removeprefix("specadapt_"), *sorted((tags or {}).values()))
            self.told[key] = self.told.get(key, 0.0) + value if counter else value

        return note


@pytest.fixture
def record(monkeypatch):
    return Record(monkeypatch)


def test_a_finished_answer_by_method_and_cluster(record):
    measured = {"output_tokens": 41, "target_steps": 21, "mean_batch": 3.0}
    measured |= {"drafted_tokens": 80, "accepted_tokens": 20, "queue_seconds": 0.1}
    measured |= {"first_token_seconds": 0.3, "decode_seconds": 2.0, "total_seconds": 2.5}
    stats = observation("a", "ngram", **measured).stats
    Metrics().finished(stats, 4)
    counters = {"output_tokens", "drafted_tokens", "accepted_tokens", "target_steps"}
    for name, *tags in record.told:
        assert tags == (["4", "ngram"] if name in counters else ["ngram"])
    assert {name: value for (name, *_), value in record.told.items()} == pytest.approx(
        {
            "output_tokens": 41.0,
            "drafted_tokens": 80.0,
            "accepted_tokens": 20.0,
            "target_steps": 21.0,
            "ttft_seconds": 0.3,
            "queue_seconds": 0.1,
            "batch_sequences": 3.0,
            "tpot_seconds": 2.0 / 40,
            "step_seconds": 2.0 / 20,
            "tokens_per_second": 41 / 2.5,
        }
    )


def test_what_keys_use_is_counted_under_a_bounded_number_of_names(record):
    usage = KeyMetrics()
    for index in range(2 * MAX_KEYS):
        usage.used(f"key-{index}", "acme", 10, 4, 3)
    usage.used("key-0", "acme", 5, 0, 0)
    series = {tags for name, *tags in map(list, record.told) for tags in [tuple(tags)]}
    assert len(series) == MAX_KEYS + 1
    assert record.told["key_prompt_tokens", "acme", "key-0"] == 15.0
    assert record.told["key_requests", "acme", "key-0"] == 2.0
    assert record.told["key_cached_tokens", "acme", "key-0"] == 4.0
    assert record.told["key_output_tokens", "", "others"] == 3.0 * MAX_KEYS


async def test_an_answer_is_counted_from_its_decision_to_its_end(ingress, record):
    answer = await answered(ingress, prompt())
    await spoken(answer)
    cluster = str(answer.decision.cluster)
    assert record.told["decisions", "draft_verify", "preferred"] == 1.0
    assert record.told["prompts", cluster, "draft_verify"] == 1.0
    assert record.told["requests", "draft_verify", "length", "preferred"] == 1.0
    assert 0.0 < record.told["decision_seconds",] == answer.routed.seconds
    assert record.told["first_chunk_seconds", "draft_verify"] > answer.routed.seconds
    assert record.told["output_tokens", cluster, "draft_verify"] == 12.0
    assert "degraded" not in {name for name, *_ in record.told}


async def test_exploring_costs_what_the_choice_without_it_would_have_saved(ingress, record):
    ingress.answerer.config = ingress.config.router.model_copy(update={"exploration": 0.5})

    def last(count: int, p: list[float]) -> int:
        """Draw an audit whenever there may be one."""
        return max(option for option in range(count) if p[option] > 0.0)

    ingress.answerer._explorer._rng = SimpleNamespace(choice=last)
    decisions = []
    while not any(decision.exploration_seconds for decision in decisions):
        assert len(decisions) < 100, "nothing is tried out"
        answer = await answered(ingress, prompt())
        await spoken(answer)
        decisions.append(answer.decision)
    explored = decisions[-1]
    assert explored.reason == "exploration"
    seconds = explored.predicted_seconds
    cost = record.told["exploration_seconds", explored.method]
    assert cost == pytest.approx(seconds[explored.method] - seconds[explored.ranked[0]], abs=2e-6)
    predicted = sum(d.predicted_seconds[d.method] for d in decisions)
    counted = sum(v for (name, *_), v in record.told.items() if name == "predicted_seconds")
    assert counted == pytest.approx(predicted)


def test_a_replica_counts_what_versions_of_heads_drafted_for_once(record):
    metrics, sums = ReplicaMetrics("a"), dict.fromkeys(SUMS, 0)
    for steps, tokens in ((0, 0), (3, 7), (3, 7), (5, 11)):
        heads = HeadCounts(part="eagle3", version=2, **sums | {"steps": steps, "tokens": tokens})
        metrics.reported(load(heads=(heads,)))
    assert record.told == {
        ("replica_head_steps", "2", "a", "eagle3"): 5.0,
        ("replica_head_tokens", "2", "a", "eagle3"): 11.0,
    }


def test_a_replica_counts_each_failure_of_a_drafter_once(record):
    metrics = ReplicaMetrics("a")
    for failures in ({}, {"eagle3": 2}, {"eagle3": 2}, {"eagle3": 3, "ngram": 1}):
        metrics.reported(load(drafter_failures=failures))
    assert record.told == {
        ("replica_drafter_failures", "a", "eagle3"): 3.0,
        ("replica_drafter_failures", "a", "ngram"): 1.0,
    }
