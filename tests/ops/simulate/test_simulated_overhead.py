"""What a service adds to its engines, by hand; shared cores; and a calibration finds it again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.harness.boundary import InputError
from ops.load.arrivals import poisson
from ops.load.policies import only
from ops.simulate import calibration
from ops.simulate.calibration import FIGURES, calibrated, ratios, simulated
from ops.simulate.cores import Cores
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives
from ops.simulate.overhead import NOTHING, Overhead, ServedCosts, read_overhead
from ops.simulate.policies import Fleet
from ops.simulate.runs import Load
from ops.simulate.served import Served, in_turn
from ops.simulate.service import Service
from schemas import AppConfig, MethodDeployment
from tests.ops.simulate.worlds import METHODS, PREFILL, Constant, workload_of, world_of

FLEET = Fleet(2, shared=False)
NAIVE = ("naive",)


def run(overhead, arrivals, prompts, *, replicas=1, costs=None, steps=((4, 4),)):
    world = replace(world_of(workload_of(*steps), costs=costs), overhead=overhead)
    service = Service(world, [NAIVE] * replicas, only("naive"), {})
    return service.run(np.asarray(arrivals, float), np.asarray(prompts), seed=0)


@given(st.lists(st.tuples(st.floats(0.0, 9.0), st.integers(0, 9)), max_size=20))
def test_work_is_done_at_the_pace_that_the_cores_allow(stretches):
    cores, done = Cores(2.0), 0.0
    for seconds, busy in stretches:
        cores.busy = float(busy)
        due = cores.when(cores.work + 1.0)
        assert due - cores.now == pytest.approx(max(1.0, busy / 2.0))
        cores.at(cores.now + seconds)
        done += seconds * min(1.0, 2.0 / busy if busy else 1.0)
        assert cores.work == pytest.approx(done)


@given(st.floats(0.0, 9.0), st.floats(0.5, 4.0), st.floats(0.0, 1.0))
def test_whoever_is_more_than_cores_slows_all_the_more(busy, count, crowding):
    cores = Cores(count, crowding)
    cores.busy = busy
    too_many = max(0.0, busy - count)
    assert cores.when(1.0) == pytest.approx(max(1.0, busy / count) * (1.0 + crowding * too_many))


def test_crowded_replicas_take_longer_than_their_turns():
    found = run(Overhead(cores=1.0, crowding=0.5), [0.0, 0.0], [0, 0], replicas=2)
    alone = run(Overhead(cores=1.0), [0.0, 0.0], [0, 0], replicas=2)
    assert found.last == pytest.approx(1.5 * alone.last)


def test_without_a_number_of_cores_nobody_is_slowed_down():
    cores = Cores(None)
    cores.busy = 100.0
    cores.at(3.0)
    assert (cores.work, cores.when(5.0)) == (3.0, 5.0)


def test_two_replicas_on_one_core_take_twice_as_long_while_both_are_at_work():
    found = run(Overhead(cores=1.0), [0.0, 0.0], [0, 1], replicas=2, steps=((4, 4), (1, 1)))
    # 1.5 seconds of work each take 3; the other 3 of the first one go on alone
    assert found.last == pytest.approx([6.0, 3.0])
    assert found.first == pytest.approx([2 * PREFILL] * 2)
    assert sorted(usage.busy for usage in found.usage) == pytest.approx([3.0, 6.0])
    two = run(Overhead(cores=2.0), [0.0, 0.0], [0, 1], replicas=2, steps=((4, 4), (1, 1)))
    assert two.last == pytest.approx([4.5, 1.5])


def test_a_request_is_work_before_a_replica_has_it_and_its_reply_comes_later():
    found = run(Overhead(request_seconds=0.2, reply_seconds=0.1), [0.0], [0])
    assert found.first == pytest.approx([0.2 + PREFILL])
    assert found.last == pytest.approx([0.2 + PREFILL + 4.0 + 0.1])
    # on one core the second one's way slows the first one's steps, and is slowed by them
    beside = run(Overhead(request_seconds=0.2, cores=1.0), [0.0, 1.0], [0, 0])
    assert beside.admitted[1] == pytest.approx(1.0 + 0.2 * 2 + 0.5, abs=0.51)
    assert beside.last[0] == pytest.approx(0.2 + PREFILL + 4.0 + 0.2 + PREFILL)


def test_an_ingress_does_one_thing_at_a_time():
    """Two requests of a second's work each come while an answer is at work and ends."""
    way = Overhead(request_seconds=1.0, cores=9.0)
    arrivals, prompts, steps = [0.0, 1.4, 1.4], [0, 1, 1], ((1, 1), (9, 9))
    found = run(way, arrivals, prompts, replicas=3, steps=steps)
    assert found.admitted == pytest.approx([1.0, 2.4, 3.4])
    # its last token is there at 2.5; the third request is on its way until 3.4, and then it is read
    assert found.last[0] == pytest.approx(3.4)
    world = world_of(workload_of(*steps))
    both = replace(world, overhead=way, ingresses=2)
    service = Service(both, [NAIVE] * 3, only("naive"), {})
    found = service.run(np.asarray(arrivals), np.asarray(prompts), seed=0)
    assert found.admitted == pytest.approx([1.0, 2.4, 2.4])
    unshared = run(Overhead(request_seconds=1.0), arrivals, prompts, replicas=3, steps=steps)
    assert unshared.admitted == pytest.approx([1.0, 2.4, 2.4])
    assert unshared.last[0] == pytest.approx(2.5)


def test_what_passes_tokens_on_takes_from_the_cores_that_replicas_share():
    """A second's step of one sequence is half a second of work elsewhere; the prompt is not."""
    streamed = Overhead(stream_seconds=0.5, cores=1.0)
    assert run(streamed, [0.0], [0]).last == pytest.approx([PREFILL + 4.0 * 1.5])
    room = Overhead(stream_seconds=0.5, cores=2.0)
    assert run(room, [0.0], [0]).last == pytest.approx([PREFILL + 4.0])
    # two replicas and what passes their tokens on are three threads on two cores
    both = run(room, [0.0, 0.0], [0, 0], replicas=2)
    assert both.last == pytest.approx([PREFILL + 4.0 * 1.5] * 2)
    # two sequences in a step are twice the work
    assert run(streamed, [0.0, 0.0], [0, 0]).last == pytest.approx([2 * PREFILL + 4.0 * 2.0] * 2)


def test_steps_within_a_service():
    served = ServedCosts(Constant(1.0), Overhead(step_factor=1.5, sequence_seconds=0.1))
    assert served.step([1, 2], 0.0, 0.0) == pytest.approx(1.5 + 0.3)
    assert served.prefill(0, 10) == pytest.approx(1.5 * PREFILL)


@pytest.mark.parametrize("text", [None, "{", '{"cores": 0}', '{"speed": 1}'])
def test_other_files_are_no_overhead(tmp_path, text):
    file = tmp_path / "overhead.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match="not written by `specadapt calibrate`"):
        read_overhead(file)
    assert read_overhead(None) == NOTHING


@pytest.fixture
def experiment():
    world = world_of(workload_of((40, 20), (10, 30)), rows=4, costs=Constant(0.01))
    world = replace(world, flush_seconds=0.5)
    config = AppConfig(methods=tuple(MethodDeployment(name=name) for name in METHODS))
    return Experiment(config, world, {}, Constant(0.01))


def load_tests(experiment, overhead, *asked):
    """Load tests (policy, rate, seed) that a service with just this overhead answers in turn."""
    hops = [(overhead.request_seconds, overhead.request_seconds)]
    tests = []
    for policy, rate, seed in asked:
        prompts = experiment.world.workload.drawn(200, seed)
        tests.append(Served(policy, Load(poisson(200, seed) / rate, prompts), {}, hops))
    return [
        replace(test, figures=found.figures(METHODS, Objectives()))
        for test, found in zip(tests, simulated(experiment, FLEET, tests, overhead), strict=True)
    ]


@pytest.mark.slow
def test_calibration_finds_what_load_tests_came_from(experiment):
    truth = Overhead(
        request_seconds=0.1,
        step_factor=1.3,
        sequence_seconds=0.001,
        stream_seconds=0.002,
        cores=1.5,
        reply_seconds=0.0,
    )
    tests = load_tests(experiment, truth, ("pinned_naive", 0.4, 1), ("routed", 0.8, 2))
    assert all(
        abs(np.log(r)).max() > 0.15 for r in map(_values, ratios(experiment, FLEET, tests, NOTHING))
    )
    found = calibrated(experiment, FLEET, [tests])
    assert all(np.abs(_values(one) - 1.0).max() < 0.05 for one in found.ratios)
    # and another load that it has not seen
    other = load_tests(experiment, truth, ("routed", 1.0, 3))
    [one] = ratios(experiment, FLEET, other, found.overhead)
    assert np.abs(_values(one) - 1.0).max() < 0.1


def _values(one):
    return np.asarray([one[name] for name in FIGURES])


@pytest.mark.slow
def test_a_service_has_learned_from_the_load_test_before(experiment):
    """The table comes from a faster machine: the first answers change later routes."""
    asked = load_tests(experiment, NOTHING, ("pinned_ngram", 0.4, 1), ("routed", 0.4, 2))
    alone = load_tests(experiment, NOTHING, ("routed", 0.4, 2))
    assert asked[1].figures != alone[0].figures
    first, second = in_turn(experiment.world, FLEET, METHODS, asked)
    assert (first.method == METHODS.index("ngram")).all()
    [untaught] = in_turn(experiment.world, FLEET, METHODS, asked[1:])
    assert (second.method != untaught.method).any()
    still = in_turn(replace(experiment.world, flush_seconds=None), FLEET, METHODS, asked)
    assert len(still) == 2
    with pytest.raises(InputError, match="consecutive load tests need one service"):
        in_turn(experiment.world, Fleet(21, shared=True), METHODS, asked)


def test_a_server_that_says_nothing_of_its_engines_is_refused(experiment):
    [asked] = load_tests(experiment, NOTHING, ("routed", 0.5, 1))
    with pytest.raises(InputError, match="the files have no engine times"):
        calibration.calibrated(experiment, FLEET, [[replace(asked, hops=[])]])
