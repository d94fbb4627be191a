"""Replicas that come and go in a simulation."""

import numpy as np

from ops.load.policies import only
from ops.simulate.fleet import LOOK_SECONDS, Autoscaler
from ops.simulate.outcomes import REFUSED
from ops.simulate.policies import Fleet
from ops.simulate.service import Service
from router.scaling import wanted_replicas
from schemas import AppConfig, EngineConfig, MethodDeployment
from tests.ops.simulate.worlds import Constant, workload_of, world_of

NAIVE = ("naive",)
ENGINE = EngineConfig(max_batch=2)


def resources(**given):
    values = {
        "name": "naive",
        "max_replicas": 4,
        "target_seconds": 10.0,
        "upscale_delay_seconds": 2.0,
        "downscale_delay_seconds": 30.0,
    }
    return MethodDeployment(**(values | given))


def run(arrivals, **given):
    world = world_of(workload_of((20, 20)), rows=2, costs=Constant(0.5))
    arrivals = np.asarray(arrivals, float)
    service = Service(world, [NAIVE], only("naive"), {NAIVE: resources(**given)})
    return service.run(arrivals, np.zeros(len(arrivals), int), seed=0)


def test_more_are_wanted_after_the_delay_and_fewer_after_the_longer_one():
    scaler = Autoscaler(resources(), ENGINE)
    busy = [scaler.wanted(now, 1, 35.0, 8.0, 0.0) for now in (0.0, 1.0, 2.0)]
    assert busy == [1, 1, wanted_replicas(35.0, 8.0, 0.0, 10.0, 0)]
    calm = Autoscaler(resources(), ENGINE)
    idle = [calm.wanted(now, 3, 0.0, 0.0, 0.0) for now in (0.0, 29.0, 30.0)]
    assert idle == [3, 3, 1]
    # what interrupts it begins the delay anew
    restless = Autoscaler(resources(), ENGINE)
    assert restless.wanted(0.0, 1, 90.0, 9.0, 0.0) == 1
    assert restless.wanted(16.0, 1, 0.0, 0.0, 0.0) == 1
    assert restless.wanted(32.0, 1, 90.0, 9.0, 0.0) == 1


def test_bounds_hold():
    scaler = Autoscaler(resources(upscale_delay_seconds=0.0), ENGINE)
    assert scaler.wanted(0.0, 1, 1e6, 1e6, 0.0) == 4
    least = Autoscaler(resources(min_replicas=0, downscale_delay_seconds=0.0), ENGINE)
    assert least.wanted(0.0, 2, 0.0, 0.0, 0.0) == 1


def test_replicas_start_for_a_burst_and_everybody_is_answered():
    burst = np.concatenate([np.linspace(0.0, 5.0, 40), [300.0]])
    found = run(burst)
    assert (found.method != REFUSED).all()
    one = run(burst, max_replicas=1)
    assert (found.last - found.arrived).mean() < 0.6 * (one.last - one.arrived).mean()
    # one stays, and each of three others is paid for from the moment that it is wanted until it
    # has been idle for the delay
    there = sorted(usage.there for usage in found.usage)
    assert len(there) == 4
    assert all(30.0 < seconds < 150.0 for seconds in there[:3])
    assert 300.0 < there[3] <= found.last.max()


def test_what_waits_goes_to_replicas_as_they_come():
    """A replica takes three at a time, and what comes beyond them waits for whichever has room."""
    found = run(np.linspace(0.0, 1.0, 12), max_replicas=2)
    assert (found.method != REFUSED).all()
    first = np.sort(found.admitted)
    start = LOOK_SECONDS + 2.0 + 5.0
    assert first[2] > 5.0  # the third waits for a row of the first replica or for the second one
    assert ((first >= start) & (first < start + 6.0)).sum() >= 2


def test_fleets_that_a_configuration_scales():
    fixed = AppConfig(methods=(MethodDeployment(name="a"), MethodDeployment(name="b")))
    assert Fleet.configured(fixed, ["a", "b"]) == Fleet(2, shared=False)
    scaled = (resources(name="a"), resources(name="b", min_replicas=2, max_replicas=3))
    fleet = Fleet.configured(AppConfig(methods=scaled), ["a", "b"])
    assert fleet.layout(["a", "b"], "routed") == [("a",), ("b",), ("b",)]
    assert fleet.scales(["a", "b"], "routed") == {("a",): scaled[0], ("b",): scaled[1]}
    [(hosted, bounds)] = fleet.scales(["a", "b"], "only_a").items()
    assert (hosted, bounds.min_replicas, bounds.max_replicas) == (("a",), 3, 7)
    shared = AppConfig(layout="shared", shared=resources(name="shared"), methods=scaled)
    whole = Fleet.configured(shared, ["a", "b"])
    assert whole.scales(["a", "b"], "routed") == {("a", "b"): shared.shared}
