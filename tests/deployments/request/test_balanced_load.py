"""How evenly replicas are loaded: seconds of answers in a simulated fleet, seeded."""

import numpy as np
import pytest
from fleet import served

from router.fit.assign import build_table
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile


@pytest.fixture(scope="module")
def fitted():
    return build_table(*make_profile(), CENTROIDS, ENCODER)


def test_requests_count_by_the_tokens_that_are_expected(fitted):
    """A fifth of the clients allow 2,048 tokens for answers like the others'."""
    allowed, expected = (served(fitted, [1.0] * 8, counted=c) for c in (None, 60))
    assert expected.mean() < 0.95 * allowed.mean()


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_slow_replicas_get_less_work(fitted, load):
    """Two of eight are at 0.4 of the others' speed, which the table does not know."""
    speeds = [0.4, 0.4] + [1.0] * 6
    blind = served(None, speeds, load=load)
    seeing = served(fitted, speeds, load=load)
    assert seeing.mean() < 0.95 * blind.mean()
    assert np.percentile(seeing, 99) < 0.85 * np.percentile(blind, 99)


def test_many_ingresses_do_not_all_take_the_same_replica(fitted, monkeypatch):
    sixteen = served(fitted, [1.0] * 16, ingresses=16, seconds=20.0)
    with monkeypatch.context() as least:
        least.setattr("deployments.request.in_flight.MANY_INGRESSES", 1e9)
        herding = served(fitted, [1.0] * 16, ingresses=16, seconds=20.0)
    assert sixteen.mean() < 0.93 * herding.mean()
