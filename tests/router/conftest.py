import pytest
from routing_world import CENTROIDS, ENCODER, make_profile
from simulated_service import ACCEPTANCE_NOISE, STEP_NOISE

from router.fit.assign import build_table
from schemas import RoutingTable


@pytest.fixture(scope="session")
def table() -> RoutingTable:
    return build_table(*make_profile(), CENTROIDS, ENCODER)


@pytest.fixture(scope="session")
def offline() -> RoutingTable:
    """Fitted on answers that differ as those of the simulated service do."""
    profile = make_profile(per_cluster=30, noise=STEP_NOISE, spread=ACCEPTANCE_NOISE)
    return build_table(*profile, CENTROIDS, ENCODER)
