"""Which replica takes a request: Ray Serve's own routing loop over replicas that are numbers."""

import asyncio
import time
from collections import Counter

import pytest
from observations import load
from observations import request as asked
from ray.serve._private.common import (
    DeploymentHandleSource,
    DeploymentID,
    ReplicaID,
    RequestMetadata,
)
from ray.serve.config import RequestRouterConfig
from ray.serve.request_router import PendingRequest

from deployments.app import REPLICA_CHOICE
from deployments.request.in_flight import InFlight, publish

METHOD = DeploymentID("naive", "app")


class Replica:
    """What Serve's routing loop asks a replica."""

    def __init__(self, name, requests=0, max_ongoing_requests=16):
        self.replica_id = ReplicaID(name, METHOD)
        self.max_ongoing_requests = max_ongoing_requests
        self.requests = requests

    async def get_queue_len(self, *, deadline_s):  # noqa: ARG002
        return self.requests


class World:
    """A request router as Serve makes it, with the ingress's view in the same process."""

    def __init__(self):
        self.reports = []
        self.in_flight = InFlight(lambda: self.reports)
        publish(METHOD.app_name, self.in_flight)
        self.router = self.made()

    def made(self):
        """Another handle's router, from bytes of its own."""
        kind = RequestRouterConfig(request_router_class=REPLICA_CHOICE).get_request_router_class()
        router = kind(METHOD, DeploymentHandleSource.REPLICA, use_replica_queue_len_cache=True)
        router.initialize_state()
        return router

    def report(self, name, outstanding, age=0.1, healthy=True):
        self.reports = [report for report in self.reports if report.replica != name]
        fields = {"outstanding_tokens": outstanding, "healthy": healthy, "time": time.time() - age}
        self.reports.append(load(name, **fields))

    async def send(self, identity, tokens=50, router=None):
        """The replica that takes a request, as the ingress calls it; it stays under way."""
        router = router or self.router
        request = asked(identity, "naive", tokens)
        self.in_flight.begin(request)
        # One HTTP request, so that all of its calls carry the same internal id.
        metadata = RequestMetadata("http", "http")
        pending = PendingRequest(args=[request, False], kwargs={}, metadata=metadata)
        replica = await router._choose_replica_for_request(pending)
        router.on_send_request(replica.replica_id)
        router.on_request_routed(pending, replica.replica_id, None)
        return replica.replica_id.unique_id


def batched(taken):
    """Neighbours two by two."""
    return zip(taken[::2], taken[1::2], strict=True)


@pytest.fixture
async def world():
    return World()


async def test_what_was_sent_since_the_report_counts(world):
    world.router.update_replicas([Replica("1"), Replica("2")])
    world.report("1", 0)
    world.report("2", 120)
    assert [await world.send(str(i)) for i in range(4)] == ["1", "1", "1", "2"]


async def test_a_burst_is_spread_before_any_replica_has_answered(world):
    world.router.update_replicas([Replica("1"), Replica("2"), Replica("3")])
    for name in ("1", "2", "3"):
        world.report(name, 0)
    taken = await asyncio.gather(*(world.send(str(i)) for i in range(30)))
    assert Counter(taken) == {"1": 10, "2": 10, "3": 10}


@pytest.mark.parametrize("silent", [True, False])
async def test_a_replica_that_is_silent_or_not_healthy_comes_last(world, silent):
    world.router.update_replicas([Replica("sick"), Replica("well")])
    world.report("sick", 0)
    world.report("well", 5000)
    assert await world.send("before") == "sick"
    if silent:
        world.reports = [report for report in world.reports if report.replica == "well"]
    else:
        world.report("sick", 0, healthy=False)
    assert await world.send("after") == "well"


async def test_a_full_replica_gives_way_to_the_next(world):
    world.router.update_replicas([Replica("full", requests=16), Replica("free", requests=3)])
    world.report("full", 10)
    world.report("free", 700)
    assert await asyncio.wait_for(world.send("x"), 120) == "free"
    assert world.in_flight.present().outstanding.tolist() == [10, 750]


async def test_a_replica_that_pauses_takes_nothing_while_the_others_are_full(world):
    """Serve gives the place that one request finds to another one that waits longer."""
    full = Replica("full", requests=16)
    world.router.update_replicas([Replica("bad"), full])
    world.report("bad", 0)
    world.report("full", 700)
    for name in ("p", "q"):
        assert await world.send(name) == "bad"
        world.in_flight.failed(name)
    waiting = [asyncio.create_task(world.send(name)) for name in ("q", "x", "y")]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting)
    full.requests = 3
    assert await asyncio.wait_for(asyncio.gather(*waiting), 120) == ["full"] * 3


async def test_the_methods_of_shared_replicas_are_balanced_together(world):
    """Each method has a handle, and so a router, of its own to the one deployment."""
    replicas = [Replica("1"), Replica("2")]
    routers = [world.router, world.made(), world.made()]
    for router in routers:
        router.update_replicas(replicas)
    world.report("1", 0)
    world.report("2", 0)
    taken = [await world.send(str(i), router=routers[i % 3]) for i in range(12)]
    assert all({first, second} == {"1", "2"} for first, second in batched(taken))


async def test_a_single_replica_is_known_to_have_what_was_sent(world):
    world.router.update_replicas([Replica("only")])
    world.report("only", 100)
    assert await world.send("x") == "only"
    assert world.in_flight.present().outstanding.tolist() == [150]


async def test_where_nothing_is_known_serve_counts_requests(world):
    world.router.update_replicas([Replica("busy", requests=9), Replica("idle", requests=1)])
    await asyncio.sleep(0)
    assert await world.send("x") == "idle"
