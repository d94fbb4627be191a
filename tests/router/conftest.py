import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router.fit.assign import build_table
from schemas import RoutingTable


@pytest.fixture(scope="session")
def table() -> RoutingTable:
    return build_table(*make_profile(), CENTROIDS, ENCODER)
