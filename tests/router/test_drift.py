"""Drift: quiet while prompts are as they were, however they are mixed; loud when they are not."""

import json
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_kinds import Kinds

from router import cluster, drift
from router.drift import (
    LEAST_SHARE,
    REFERENCE_WINDOWS,
    SIGNIFICANCE,
    DriftWatch,
    Reference,
    alarm_above,
    share_farther,
)

WINDOW = 200
OLD = [0, 1, 2, 3, 4]


@pytest.fixture(autouse=True, scope="module")
def shorter_window() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift, "WINDOW", WINDOW)
        yield


@cache
def fitted(seed: int) -> tuple[np.ndarray, Reference]:
    """A fit of the old ones of `Kinds(6, seed)`."""
    kinds = Kinds(6, seed)
    kinds.rng = np.random.default_rng([seed, 1])
    vectors = kinds.mixed(2000, OLD)
    centroids = cluster.fit(vectors, len(OLD), seed=0)
    labels = cluster.assign(centroids, vectors)
    return centroids, Reference.of_fit(centroids, vectors, labels)


def drifted(watch: DriftWatch) -> bool:
    share, alarm = watch.share_farther, watch.alarm_above
    return share is not None and alarm is not None and share > alarm


def watched(watch: DriftWatch, vectors: np.ndarray) -> int | None:
    """After how many of the prompts there was an alarm, tested four times a window."""
    for i, vector in enumerate(vectors, 1):
        watch.see(cluster.packed(vector))
        if i % (WINDOW // 4) == 0 and drifted(watch):
            return i
    return None


@pytest.mark.parametrize("live", [False, True])
def test_prompts_as_before_raise_hardly_any_alarm(live: bool) -> None:
    """At most SIGNIFICANCE of the tests: with a reference of the fit and with one of the first
    prompts, whose own error must not count as drift."""
    alarms = tests = 0
    for seed in range(4):
        kinds = Kinds(6, seed)
        centroids, reference = fitted(kinds.seed)
        watch = DriftWatch(centroids, None if live else reference)
        for _ in range(80):
            for vector in kinds.mixed(WINDOW // 4, OLD):
                watch.see(cluster.packed(vector))
            alarms += drifted(watch)
            tests += watch.share_farther is not None
    assert tests > 250
    assert alarms <= SIGNIFICANCE * tests + 1


def test_another_mix_of_the_same_kinds_is_no_drift() -> None:
    kinds = Kinds(6, seed=3)
    centroids, reference = fitted(kinds.seed)
    watch = DriftWatch(centroids, reference)
    for only in ([0], [4], [1, 2], [3]):
        assert watched(watch, kinds.mixed(2 * WINDOW, only)) is None


@pytest.mark.parametrize(("share", "within"), [(1.0, 75), (0.5, 150), (0.25, 300)])
@pytest.mark.parametrize("live", [False, True])
def test_a_new_kind_of_prompt_is_noticed(share: float, within: int, live: bool) -> None:
    """In a stream of which it becomes `share`, after at most `within` prompts."""
    for seed in range(3):
        kinds = Kinds(6, seed)
        centroids, reference = fitted(kinds.seed)
        watch = DriftWatch(centroids, None if live else reference)
        start = (REFERENCE_WINDOWS + 1) * WINDOW
        assert watched(watch, kinds.mixed(start, OLD)) is None
        new = kinds.rng.random(within) < share
        stream = kinds.prompts(np.where(new, 5, kinds.rng.choice(OLD, within)))
        noticed = watched(watch, stream)
        assert noticed is not None, (seed, watch.share_farther, watch.alarm_above)


def test_prompts_that_repeat_are_no_drift() -> None:
    kinds = Kinds(6, seed=2)
    few = kinds.mixed(3, OLD)
    centroids = cluster.fit(kinds.mixed(500, OLD), 5, seed=0)
    watch = DriftWatch(centroids, None)
    rng = np.random.default_rng(0)
    assert watched(watch, few[rng.integers(3, size=2000)]) is None


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), farther=st.floats(0.0, 0.5))
def test_the_statistic_by_its_definition(values: list[float], farther: float) -> None:
    ranks = np.asarray(values)
    grid = np.concatenate([np.linspace(0.0, 1.0, 4001), ranks - 1e-9])
    by_definition = max(0.0, *(u - float((ranks <= u).mean()) for u in grid))
    assert share_farther(ranks) == pytest.approx(by_definition, abs=1e-6)
    assert share_farther(np.minimum(1.0, ranks + farther)) >= share_farther(ranks) - 1e-12


def test_the_limit_is_what_chance_gives_or_what_is_worth_it() -> None:
    assert alarm_above(10**6, 10**6) == LEAST_SHARE
    rng = np.random.default_rng(0)
    n, m, runs = 60, 120, 4000
    over = 0
    for _ in range(runs):
        reference = np.sort(rng.random(m))
        ranks = np.searchsorted(reference, rng.random(n)) / m
        over += share_farther(ranks) > alarm_above(n, m)
    assert over / runs <= 2 * SIGNIFICANCE


def test_a_cluster_with_few_prompts_is_judged_with_others_like_it() -> None:
    labels = np.repeat([0, 1, 2, 3], [100, 12, 12, 4])
    distances = np.concatenate([np.full(100, 0.5), np.full(28, 0.9)])
    reference = Reference.of(labels, distances, 5)
    ranks = reference.ranks(np.array([0, 1, 3, 4]), np.full(4, 0.9))
    np.testing.assert_allclose(ranks, [1, 0, 0, 0], atol=0.05)


def test_a_reference_survives_json() -> None:
    reference = fitted(0)[1]
    again = Reference.read(json.loads(json.dumps(reference.state())))
    np.testing.assert_allclose(again.quantiles, reference.quantiles, atol=1e-5)
    assert again.prompts == reference.prompts
    for broken in (
        {},
        {"quantiles": [[1.0] * 21] * 2, "prompts": 0},
        {"quantiles": 3, "prompts": 3},
    ):
        with pytest.raises(ValueError, match="distances of the fit"):
            Reference.read(broken)


def test_vectors_travel_in_half_precision() -> None:
    vector = Kinds(6, seed=0).mixed(1, [0])
    data = cluster.packed(vector)
    assert len(data) == 2 * vector.size
    np.testing.assert_allclose(cluster.unpacked(data, vector.size), vector[0], atol=5e-4)
    with pytest.raises(ValueError, match="dimensions"):
        cluster.unpacked(data, vector.size + 1)
    with pytest.raises(ValueError, match="NaN or infinity"):
        cluster.unpacked(b"\x00\x7c" * vector.size, vector.size)
