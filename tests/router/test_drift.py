"""Drift: quiet while prompts are as they were, however they are mixed; loud when they are not."""

import json
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_policy import MADE

from router import cluster, drift
from router.drift import SIGNIFICANCE, DriftWatch, Reference, share_farther
from schemas import RoutingTable

WINDOW = 200
OLD = [0, 1, 2, 3, 4]
DIMENSION = 64


class Kinds:
    """`count` made-up kinds of prompts: unit vectors around a direction each, as an encoder gives
    them."""

    def __init__(self, count: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        basis = np.linalg.qr(self.rng.standard_normal((DIMENSION, DIMENSION)))[0]
        self._centres = basis[:count]
        self._tightness = 0.6 * self.rng.uniform(0.85, 1.15, count)

    def prompts(self, kinds: NDArray[np.intp]) -> NDArray[np.float32]:
        """A prompt [n, 64] of each of these kinds [n]."""
        noise = self.rng.standard_normal((len(kinds), DIMENSION)) / np.sqrt(DIMENSION)
        strength = self._tightness[kinds][:, None]
        vectors = strength * self._centres[kinds] + np.sqrt(1.0 - strength**2) * noise
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def mixed(self, n: int, kinds: list[int]) -> NDArray[np.float32]:
        """n prompts of these kinds, evenly mixed."""
        return self.prompts(self.rng.choice(kinds, n))


@pytest.fixture(autouse=True, scope="module")
def shorter_window() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift, "WINDOW", WINDOW)
        yield


@cache
def fitted(seed: int) -> RoutingTable:
    """A table of a fit of the old ones of `Kinds(6, seed)`."""
    kinds = Kinds(6, seed)
    kinds.rng = np.random.default_rng([seed, 1])
    vectors = kinds.mixed(2000, OLD)
    centroids = cluster.fit(vectors, len(OLD), seed=0)
    reference = Reference.of_fit(centroids, vectors, cluster.assign(centroids, vectors))
    provenance = {"distances": json.loads(json.dumps(reference.state()))}
    return MADE.model_copy(update={"centroids": centroids, "provenance": provenance})


def drifted(watch: DriftWatch) -> bool:
    report = watch.report()
    assert report.alarm_above is not None
    return report.share_farther is not None and report.share_farther > report.alarm_above


def watched(watch: DriftWatch, vectors: np.ndarray) -> int | None:
    """After how many of the prompts there was an alarm, tested four times a window."""
    for i, vector in enumerate(vectors, 1):
        watch.see(cluster.packed(vector))
        if i % (WINDOW // 4) == 0 and drifted(watch):
            return i
    return None


def test_prompts_as_before_raise_hardly_any_alarm() -> None:
    """At most SIGNIFICANCE of the tests."""
    alarms = tests = 0
    for seed in range(4):
        kinds, watch = Kinds(6, seed), DriftWatch(fitted(seed))
        for _ in range(80):
            for vector in kinds.mixed(WINDOW // 4, OLD):
                watch.see(cluster.packed(vector))
            alarms += drifted(watch)
            tests += watch.report().share_farther is not None
    assert tests > 250
    assert alarms <= SIGNIFICANCE * tests + 1


def test_another_mix_of_the_same_kinds_is_no_drift() -> None:
    kinds, watch = Kinds(6, seed=3), DriftWatch(fitted(3))
    for only in ([0], [4], [1, 2], [3]):
        assert watched(watch, kinds.mixed(2 * WINDOW, only)) is None


@pytest.mark.parametrize(("share", "within"), [(1.0, 75), (0.5, 150), (0.25, 300)])
def test_a_new_kind_of_prompt_is_noticed(share: float, within: int) -> None:
    """In a stream of which it becomes `share`, after at most `within` prompts."""
    for seed in range(3):
        kinds, watch = Kinds(6, seed), DriftWatch(fitted(seed))
        assert watched(watch, kinds.mixed(2 * WINDOW, OLD)) is None
        new = kinds.rng.random(within) < share
        stream = kinds.prompts(np.where(new, 5, kinds.rng.choice(OLD, within)))
        assert watched(watch, stream) is not None, (seed, watch.report())


def test_without_a_reference_there_is_no_test() -> None:
    watch = DriftWatch(MADE.model_copy(update={"provenance": {}}))
    watch.see(cluster.packed(MADE.centroids[0]))
    assert (watch.report().prompts, watch.report().alarm_above) == (0, None)


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), farther=st.floats(0.0, 0.5))
def test_the_statistic_by_its_definition(values: list[float], farther: float) -> None:
    ranks = np.asarray(values)
    grid = np.concatenate([np.linspace(0.0, 1.0, 4001), ranks - 1e-9])
    by_definition = max(0.0, *(u - float((ranks <= u).mean()) for u in grid))
    assert share_farther(ranks) == pytest.approx(by_definition, abs=1e-6)
    assert share_farther(np.minimum(1.0, ranks + farther)) >= share_farther(ranks) - 1e-12


def test_a_cluster_with_few_prompts_is_judged_with_all() -> None:
    labels = np.repeat([0, 1], [100, 4])
    vectors = np.full((104, 4), 0.0, dtype=np.float32)
    vectors[:, 0] = np.r_[np.linspace(0.4, 0.6, 100), np.full(4, 0.9)]
    reference = Reference.of_fit(np.zeros((2, 4)), vectors, labels)
    assert reference.rank(0, 0.5) == pytest.approx(0.5, abs=0.06)
    assert reference.rank(1, 0.5) == pytest.approx(0.5, abs=0.06)
    assert reference.rank(1, 1.3) == 1.0


def test_vectors_travel_in_half_precision() -> None:
    vector = Kinds(6, seed=0).mixed(1, [0])
    data = cluster.packed(vector)
    assert len(data) == 2 * vector.size
    np.testing.assert_allclose(cluster.unpacked(data, vector.size), vector[0], atol=5e-4)
    with pytest.raises(ValueError, match="dimensions"):
        cluster.unpacked(data, vector.size + 1)
    with pytest.raises(ValueError, match="NaN or infinity"):
        cluster.unpacked(b"\x00\x7c" * vector.size, vector.size)


def test_a_prompt_that_the_fit_repeats_is_no_drift() -> None:
    reference = Reference(np.asarray([np.linspace(0.1, 0.1, 21), np.linspace(0.0, 1.0, 21)]), 60)
    assert reference.rank(0, 0.1019) == 0.0
    assert reference.rank(0, 0.11) == 1.0
    assert reference.rank(1, 0.402) == pytest.approx(0.4)
    assert reference.rank(1, 2.0) == 1.0
