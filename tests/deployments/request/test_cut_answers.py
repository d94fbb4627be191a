"""What answers teach that never end: their clients leave, their deadlines pass, their methods fail.

The ingress's parts are the real ones, in simulated time.
"""

import pytest
from simulated_ingress import Simulated, in_simulated_time

from router.fit.assign import build_table
from schemas import RoutingTable
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile

SLOW = {"draft": 20.0}


@pytest.fixture(scope="module")
def fitted() -> RoutingTable:
    return build_table(*make_profile(per_cluster=30, noise=0.1, spread=0.3), CENTROIDS, ENCODER)


@pytest.mark.parametrize("whole", [False, True])
def test_prompts_leave_a_slow_method_whose_clients_leave(fitted: RoutingTable, whole: bool) -> None:
    async def asked() -> int:
        service = Simulated(fitted)
        for _ in range(30):
            await service.ask(0, whole=whole)
        service.slower |= SLOW
        ends = [await service.ask(0, leaves=1.0, whole=whole) for _ in range(150)]
        return sum(how == "left" for _, how in ends)

    assert in_simulated_time(asked()) <= 15


@pytest.mark.parametrize("slower", [20.0, 4.0])
def test_prompts_leave_a_slow_method_that_misses_its_deadlines(
    fitted: RoutingTable, slower: float
) -> None:
    async def asked() -> int:
        service = Simulated(fitted)
        for _ in range(30):
            await service.ask(0)
        service.slower["draft"] = slower
        ends = [await service.ask(0, deadline_seconds=1.0) for _ in range(150)]
        return sum(how == "504" for _, how in ends)

    assert in_simulated_time(asked()) <= 15


def test_a_method_that_hangs_is_disabled_after_missed_deadlines(fitted: RoutingTable) -> None:
    """The trials of the circuit breaker find it hanging still."""

    async def asked() -> int:
        service = Simulated(fitted, hung={"draft"})
        ends = [await service.ask(0, deadline_seconds=2.0) for _ in range(100)]
        return sum(how == "504" for _, how in ends)

    assert in_simulated_time(asked()) <= 20


def test_deadlines_that_no_method_can_keep_disable_none(fitted: RoutingTable) -> None:
    async def asked() -> tuple[str, str]:
        service = Simulated(fitted)
        ends = [await service.ask(0, deadline_seconds=0.001) for _ in range(50)]
        assert {how for _, how in ends} == {"504"}
        return await service.ask(0)

    assert in_simulated_time(asked()) == ("draft", "whole")


@pytest.mark.parametrize("whole", [False, True])
def test_deadlines_that_are_tight_disable_no_healthy_method(
    fitted: RoutingTable, whole: bool
) -> None:
    """Half of the answers are a little later than predicted."""

    async def asked() -> set[str]:
        service = Simulated(fitted)
        for _ in range(150):
            await service.ask(0, deadline_seconds=0.4, whole=whole)
        return set(service.answerer.circuits.resting())

    assert in_simulated_time(asked()) == set()


def test_a_method_that_fails_in_the_middle_teaches_as_far_as_it_came(
    fitted: RoutingTable,
) -> None:
    async def asked() -> RoutingTable:
        service = Simulated(fitted, slower=SLOW, dying={"draft": 8})
        assert await service.ask(0) == ("draft", "whole")
        return service.state.table

    learned = in_simulated_time(asked())
    assert learned.live.step_ratio[learned.methods.index("draft")] > 1.3
    assert learned.live.answers[0] == 1.0, "the whole answer counts too"
