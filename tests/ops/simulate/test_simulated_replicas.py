"""Simulated services on schedules that are known: by hand, by a formula, by the replay engines."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ops.load.arrivals import poisson
from ops.load.policies import Question, only
from ops.simulate.outcomes import CUT, REFUSED
from ops.simulate.replicas.replica import Replica
from ops.simulate.service import Service
from ops.simulate.workload import Path, Workload
from router.prompt import Features
from schemas import EngineConfig
from tests import recordings
from tests.ops.simulate.replayed_service import Site, replayed
from tests.ops.simulate.worlds import (
    METHODS,
    PREFILL,
    Constant,
    by_prompt,
    table_of,
    workload_of,
    world_of,
)
from workers.replay_engine.recording import Recording

NAIVE = ("naive",)


def run(world, layout, policy, arrivals, prompts, scales=None):
    service = Service(world, layout, policy, scales or {})
    return service.run(np.asarray(arrivals, float), np.asarray(prompts), seed=0)


def test_a_schedule_by_hand():
    world = world_of(workload_of((4, 4), (2, 2)))
    found = run(world, [NAIVE], only("naive"), [0.0, 1.0, 1.2], [0, 1, 1])
    # The second comes in the first one's first step, is read at its end, and shares two steps. The
    # third waits for a row until the second has ended.
    assert found.first == pytest.approx([0.5, 2.0, 4.5])
    assert found.last == pytest.approx([5.5, 4.0, 6.5])
    assert found.admitted == pytest.approx([0.0, 1.5, 4.0])
    assert found.tokens.tolist() == [5, 3, 3]
    [usage] = found.usage
    assert usage.there == usage.busy == pytest.approx(6.5)
    assert usage.batch / usage.decoding == pytest.approx((1 + 2 + 2 + 2 + 1) / 5)


@pytest.mark.slow
def test_one_place_is_the_queue_of_the_textbooks():
    """M/D/1: the mean wait is rho s / 2 (1 - rho), by Pollaczek and Khinchine."""
    seconds, load = PREFILL + 3.0, 0.6
    arrivals = poisson(40_000, seed=1) * (seconds / load)
    world = world_of(workload_of((3, 3)), rows=1, waiting=10_000)
    found = run(world, [NAIVE], only("naive"), arrivals, np.zeros(len(arrivals), int))
    waited = (found.admitted - found.arrived).mean()
    assert waited == pytest.approx(load * seconds / (2.0 * (1.0 - load)), rel=0.05)
    assert (found.last - found.admitted) == pytest.approx(seconds)


class Recorded:
    """What the recordings of these tests take."""

    def prefill(self, _method, _prompt_tokens, /):
        return recordings.PREFILL

    def step(self, counts, context, _rows, /):
        batch = sum(counts)
        return (
            sum(
                count * recordings.step_seconds(METHODS[m], batch, context / batch)
                for m, count in enumerate(counts)
                if count
            )
            / batch
        )


def replayed_and_simulated(folder, tokenizer, lengths, arrivals, replicas):
    """Statistics of the replay engines, step by step, and the simulation's outcomes. lengths: of
    the answer to each prompt the tokens by step; odd prompts are ngram's."""
    answers = {
        f"{METHODS[i % 2]}/{i}": [tuple(range(1, n + 1)) for n in steps]
        for i, steps in enumerate(lengths)
    }
    profile = recordings.write_profile(folder, answers, bundle="demo:1")
    recording = Recording.load(profile)
    # enough rows for a mixed batch; a chunk that cuts every second prompt of ten tokens in two
    engine = EngineConfig(max_batch=3, kv_slots=16384, max_context=2048, prefill_chunk=16)
    layout = [METHODS] * replicas
    questions = tuple(
        Question(recordings.prompt_of(i), 0, Features(10, sum(steps)), "")
        for i, steps in enumerate(lengths)
    )
    policy = by_prompt(lambda question: METHODS[questions.index(question) % 2])
    site = Site(recording, tokenizer, engine, tuple(layout))
    stats = replayed(site, policy, questions, arrivals)
    paths = tuple(((Path(sum(s), len(s) - 1, 1.0),),) * 2 for s in lengths)
    weights = np.full(len(lengths), 1.0 / len(lengths))
    world = world_of(
        Workload(tuple("x" * 40), questions, weights, paths), rows=3, costs=Recorded(), chunk=16
    )
    return stats, run(world, layout, policy, arrivals, np.arange(len(lengths)))


@pytest.mark.parametrize(
    ("replicas", "widest", "apart"), [(1, 1, 1e-9), (2, 1, 1e-9), (1, 5, 0.01)]
)
def test_stretches_of_steps_agree_with_single_ones(tmp_path, tiny_bundle, replicas, widest, apart):
    rng = np.random.default_rng(3)
    lengths = [rng.integers(1, widest + 1, rng.integers(2, 30)).tolist() for _ in range(40)]
    for steps in lengths:
        steps[0] = 1
    arrivals = np.sort(rng.uniform(0.0, 4.0, len(lengths)))
    stats, found = replayed_and_simulated(
        tmp_path / "profile", tiny_bundle.backend_tokenizer(), lengths, arrivals, replicas
    )
    seconds = [one.total_seconds for one in stats]
    assert max(seconds) > 3.0 * min(seconds)
    assert found.tokens.tolist() == [one.output_tokens for one in stats]
    assert found.last - found.arrived == pytest.approx(seconds, rel=apart)
    first = [one.first_token_seconds for one in stats]
    assert found.first - found.arrived == pytest.approx(first, rel=2 * apart)


@st.composite
def some_loads(draw):
    steps = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=6))
    count = draw(st.integers(1, 30))
    gaps = draw(st.lists(st.floats(0.0, 3.0), min_size=count, max_size=count))
    prompts = draw(st.lists(st.integers(0, len(steps) - 1), min_size=count, max_size=count))
    return steps, np.cumsum(gaps), np.asarray(prompts)


@settings(deadline=None)
@given(
    some_loads(),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 3),
    st.lists(st.floats(0.0, 30.0), max_size=2),
    st.none() | st.floats(0.1, 10.0),
)
# the second arrives a rounding error after the end of a step
@example(
    ([(6, 0)], np.asarray([0.20228519964634845] + [2.2022851996463486] * 21), np.zeros(22, int)),
    1,
    2,
    0,
    [],
    None,
)
def test_every_request_ends_once(load, replicas, rows, waiting, kills, patience):
    steps, arrivals, prompts = load
    world = world_of(
        workload_of(*steps), rows=rows, waiting=waiting, costs=Constant(0.3), kills=tuple(kills)
    )
    world = replace(world, patience=patience)
    counted = []
    ended = "ops.simulate.outcomes.Outcomes.ended"
    with patch(ended, lambda _, request, now: counted.append((request, now))):
        run(world, [METHODS] * replicas, only("naive"), arrivals, prompts)
    found = run(world, [METHODS] * replicas, only("naive"), arrivals, prompts)
    there = found.method >= 0
    assert len(counted) == len({request.number for request, _ in counted}) == there.sum()
    wanted = np.asarray([1 + steps[p][0] for p in prompts])
    assert (found.tokens == np.where(there, wanted, 0)).all()
    for before, after in (("arrived", "admitted"), ("admitted", "first"), ("first", "last")):
        assert (getattr(found, before)[there] <= getattr(found, after)[there]).all()
    assert all(0.0 <= usage.busy <= usage.there + 1e-6 for usage in found.usage)
    assert all(usage.batch <= rows * usage.decoding + 1e-6 for usage in found.usage)
    if not kills and waiting + rows >= len(arrivals):
        assert (found.method != REFUSED).all()
    if patience is None:
        assert (found.method != CUT).all()
    else:
        assert (found.last - found.arrived)[there].max(initial=0.0) <= patience + 0.5 + 0.3 + 1e-6


def test_nobody_waits_while_there_is_room():
    """Work conserving: while a request waits for a row, its replica's rows are all taken."""
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.uniform(0.0, 100.0, 60))
    world = world_of(workload_of((9, 9), (3, 3)), rows=2)
    found = run(world, [NAIVE], only("naive"), arrivals, rng.integers(0, 2, 60))
    [usage] = found.usage
    assert usage.busy == pytest.approx(usage.there, rel=0.05)  # more comes than it can do
    longest_step = 1.0 + PREFILL
    for i, admitted in enumerate(found.admitted):
        waits = (found.arrived[i] + longest_step, admitted)
        beside = [
            j
            for j in range(60)
            if j != i and found.admitted[j] < waits[1] and found.last[j] > waits[0]
        ]
        assert admitted <= waits[0] or len(beside) >= 2


def test_replicas_get_requests_by_their_speed():
    """The second replica is five times slower and gets none of the later requests."""
    world = world_of(workload_of((20, 20)), rows=4, costs=Constant(0.01))
    service = Service(world, [METHODS] * 2, only("naive"), {})
    first, second = service._replicas.live.values()
    second._costs = Constant(0.05)
    service.run(np.asarray([0.0, 0.0, 20.0, 20.0, 20.0]), np.zeros(5, int), seed=0)
    assert second.busy_seconds == pytest.approx(PREFILL + 20 * 0.05)
    assert first.busy_seconds > second.busy_seconds


def test_a_full_line_gives_way_to_the_next_method_and_refuses_at_last():
    world = world_of(workload_of((5, 5)), rows=1, waiting=0)
    layout = [("naive",), ("ngram",)]
    found = run(world, layout, lambda *_: ["naive", "ngram"], [0.0, 0.1, 0.2], [0, 0, 0])
    assert found.method.tolist() == [0, 1, REFUSED]
    assert np.isnan(found.last[2])


def test_what_a_dead_replica_had_goes_on_elsewhere():
    world = world_of(workload_of((9, 9), (9, 9)), kills=(3.55,))
    found = run(world, [NAIVE, NAIVE], only("naive"), [0.0, 0.1], [0, 1])
    # The second request's replica has more before it, and dies in the third step with three tokens
    # out. They are read with the prompt at the end of the other's step, from 4.5 to 5.0, which
    # makes the fourth token; six steps make the others.
    assert found.failures.tolist() == [0, 1]
    assert found.tokens.tolist() == [10, 10]
    assert found.first == pytest.approx([0.5, 0.6])
    assert found.last == pytest.approx([10.0, 11.0])
    # the new one is there, and paid for, from the moment that it is wanted
    assert sorted(usage.there for usage in found.usage) == pytest.approx([3.55, 7.45, 11.0])


def test_what_was_said_is_read_again():
    class ByToken(Constant):
        def prefill(self, _method, prompt_tokens, /):
            return prompt_tokens / 10.0

    world = world_of(workload_of((9, 9)), kills=(4.5,), costs=ByToken())
    found = run(world, [NAIVE, NAIVE], only("naive"), [0.0], [0])
    # Read until 1.0, three steps until 4.0: ten tokens of the prompt and four of the answer are
    # read elsewhere, and five steps make the other six.
    assert found.last == pytest.approx([4.5 + 1.4 + 5.0])


def test_a_replica_is_started_in_the_place_of_the_dead_one():
    world = world_of(workload_of((2, 2)), rows=1, waiting=0, kills=(1.0,))
    late = run(world, [NAIVE], only("naive"), [2.0, 5.9, 6.1], [0, 0, 0])
    assert late.method.tolist() == [REFUSED, REFUSED, 0]
    assert sum(usage.there for usage in late.usage) == pytest.approx(1.0 + late.last[2] - 1.0)


def test_a_request_under_which_two_replicas_died_is_given_up():
    world = world_of(workload_of((50, 50)), kills=(3.0, 4.0))
    found = run(world, [NAIVE, NAIVE, NAIVE], only("naive"), [0.0], [0])
    assert found.method.tolist() == [REFUSED]


def test_events_are_few_however_many_steps():
    """A million requests are to be simulated in minutes: a request is a handful of events, not one
    for each step."""
    arrivals = poisson(2000, seed=0) * 0.6
    world = world_of(workload_of((90, 40), (30, 200)), rows=8, costs=Constant(0.02))
    count = 0
    advance = Replica.advance

    def counted(self):
        nonlocal count
        count += 1
        return advance(self)

    with patch.object(Replica, "advance", counted):
        prompts = world.workload.drawn(len(arrivals), seed=0)
        found = run(world, [METHODS] * 3, only("naive"), arrivals, prompts)
    assert found.tokens.sum() > 50 * len(arrivals)
    assert count <= 4 * len(arrivals)
    assert table_of().methods == METHODS
