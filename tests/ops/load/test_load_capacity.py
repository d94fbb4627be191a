"""What any routing can reach, where it can be worked out by hand."""

import numpy as np
import pytest

from ops.load.capacity import most_requests_per_s

EVEN = np.asarray([0.5, 0.5])
SECONDS = {"a": np.asarray([1.0, 4.0]), "b": np.asarray([2.0, 2.0])}
"""Seconds a request, by method and kind."""


def test_one_method_everywhere_is_held_up_by_its_mean():
    assert most_requests_per_s([("a",)] * 2, SECONDS, EVEN) == pytest.approx(2 / 2.5)
    assert most_requests_per_s([("b",)] * 3, SECONDS, EVEN) == pytest.approx(3 / 2.0)


def test_each_kind_goes_where_it_is_cheap_and_the_rest_is_shared_out():
    # a takes the first kind in half its time, b all of the second: a still has room, at 4 s
    best = most_requests_per_s([("a",), ("b",)], SECONDS, EVEN)
    # rate r: b finishes 1/2 a second, a 1 s for each of the first kind and 4 s for what is left
    # of the second: 0.5 r + 4 (0.5 r - 0.5) = 1
    assert best == pytest.approx(3 / 2.5)
    assert best > most_requests_per_s([("a",)] * 2, SECONDS, EVEN)


def test_a_replica_of_several_methods_uses_the_cheaper_one():
    both = most_requests_per_s([("a", "b")] * 2, SECONDS, EVEN)
    assert both == pytest.approx(2 / (0.5 * 1.0 + 0.5 * 2.0))


def test_the_mix_of_requests_counts():
    first = most_requests_per_s([("a",)], SECONDS, np.asarray([1.0, 0.0]))
    assert first == pytest.approx(1.0)
