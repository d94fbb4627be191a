import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router.fit.assign import build_table
from router.fit.profile import Profile
from schemas import RoutingTable


@pytest.fixture
def profile() -> Profile:
    return make_profile()[0]


@pytest.fixture
def table() -> RoutingTable:
    made, vectors = make_profile()
    return build_table(made, vectors, CENTROIDS, ENCODER)
