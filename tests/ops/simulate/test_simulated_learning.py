"""A simulated service learns from its answers as the real one does."""

from dataclasses import replace

import numpy as np
import pytest

from ops.load.policies import UNLOADED, Routed
from ops.simulate.learning import Learning, stats_of
from ops.simulate.service import Service
from ops.simulate.workload import Request
from router import evidence
from schemas import RouterConfig
from tests.ops.simulate.worlds import METHODS, Constant, by_prompt, table_of, workload_of, world_of


def served(world, arrivals, prompts, layout, config=None):
    policy = Routed(world.table, config or world.router, 0)
    service = Service(world, layout, policy, {})
    service.run(np.asarray(arrivals, float), np.asarray(prompts), seed=0)
    return service


def test_the_table_comes_to_know_what_the_prompts_take():
    """Every answer of 61 tokens takes naive 60 steps and ngram 10: 6 tokens a step."""
    steps = [(60, 10)] * 2
    workload = workload_of(*steps, max_tokens=61)
    paths = tuple(tuple((replace(p, tokens=61),) for (p,) in ways) for ways in workload.paths)
    world = replace(
        world_of(replace(workload, paths=paths), costs=Constant(0.01)), flush_seconds=0.5
    )
    arrivals = np.arange(200) * 1.0
    service = served(world, arrivals, np.arange(200) % 2, [METHODS])
    found = service.learning.learner.table
    ngram = found.methods.index("ngram")
    assert found.version > world.table.version
    before, after = (evidence.acceptance(t)[0, ngram, 0] for t in (world.table, found))
    assert abs(after - 6.0) < abs(before - 6.0)
    assert found.live.answers.sum() > 1.0
    # the steps are much slower than the table's, which was measured elsewhere
    assert (found.live.step_ratio != 1.0).any()
    assert served(replace(world, flush_seconds=None), arrivals, arrivals.astype(int) % 2, [METHODS])
    still = served(replace(world, flush_seconds=None), [0.0], [0], [METHODS])
    assert still.learning is None


def test_only_the_policy_that_serves_learns():
    world = replace(world_of(workload_of((4, 4))), flush_seconds=0.5)
    assert Service(world, [METHODS], by_prompt(lambda _: "naive"), {}).learning is None


def test_what_an_answer_says_of_itself():
    """As in the schedule by hand: the second one is read in the middle of the first one's steps."""
    world = world_of(workload_of((4, 4), (2, 2)), rows=2)
    service = Service(
        replace(world, flush_seconds=1e9), [METHODS], Routed(world.table, world.router, 0), {}
    )
    seen = []
    service.learning.ended = lambda now, request, method: seen.append(
        stats_of(now, request, method, "0")
    )
    service.learning.ordered = lambda _now, request, _loads: (
        ["ngram"] if request.number else ["naive"]
    )
    service.run(np.asarray([0.0, 1.0]), np.asarray([0, 1]), seed=0)
    second, first = seen
    assert (first.method, second.method) == ("naive", "ngram")
    assert (first.target_steps, first.output_tokens, first.context_length) == (5, 5, 15)
    assert first.decode_seconds == pytest.approx(5.0 - 0.5)
    assert first.stalled_seconds == pytest.approx(0.5)
    assert first.mean_batch == pytest.approx((1 + 2 + 2 + 1) / 4)
    assert first.batch_by_method == {"naive": 1.0, "ngram": 0.5}
    assert second.batch_by_method == {"naive": 1.0, "ngram": 1.0}
    assert second.stalled_seconds == pytest.approx(0.0)
    assert second.mean_batch == pytest.approx(2.0)
    assert second.queue_seconds == pytest.approx(0.5)
    assert second.first_token_seconds == pytest.approx(1.0)
    assert second.total_seconds == pytest.approx(3.0)
    assert {first.finish_reason, second.finish_reason} == {"stop"}


def test_an_answer_that_was_cut_off_says_so():
    world = world_of(workload_of((4, 4), max_tokens=5))
    request = Request(
        0, 0.0, world.workload.questions[0], tuple(p[0] for p in world.workload.paths[0])
    )
    request.answered_by(0)
    request.handed = request.admitted = request.first = 0.0
    assert stats_of(1.0, request, "naive", "0").finish_reason == "length"


def test_an_answer_of_which_a_dead_replica_left_one_token_has_no_batch():
    world = world_of(workload_of((4, 4), max_tokens=5))
    request = Request(
        0, 0.0, world.workload.questions[0], tuple(p[0] for p in world.workload.paths[0])
    )
    request.answered_by(0)
    request.batch_steps = {"naive": 7}
    request.lost(request.path.tokens - 1)
    request.answered_by(0)
    request.handed = request.admitted = request.first = 0.0
    stats = stats_of(1.0, request, "naive", "0")
    assert (stats.mean_batch, stats.batch_by_method) == (1.0, {})


def test_tables_come_no_sooner_than_they_are_flushed():
    world = world_of(workload_of((4, 4)))
    policy = Routed(table_of(), RouterConfig(exploration=0.0), 0)
    learning = Learning(policy, world.router, 10.0)
    versions = []
    for number, now in enumerate((10.0, 12.0, 19.9, 20.0)):
        request = Request(
            number, now, world.workload.questions[0], tuple(p[0] for p in world.workload.paths[0])
        )
        learning.ordered(now, request, UNLOADED)
        versions.append(policy.table.version)
        request.answered_by(0)
        request.handed = request.admitted = request.first = now
        learning.ended(now + 1.0, request, "naive")
    first = versions[0]
    assert versions == [first, first, first, first + 1]
