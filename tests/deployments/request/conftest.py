"""The routing table of the made-up world, for ingresses in simulated time."""

import pytest

from router.fit.assign import build_table
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile


@pytest.fixture(scope="session")
def fitted():
    return build_table(*make_profile(per_cluster=30, noise=0.1, spread=0.3), CENTROIDS, ENCODER)
