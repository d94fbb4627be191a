"""Clients that leave a simulated service, and deadlines that pass."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ops.load.policies import Routed
from ops.simulate.learning import Learning
from ops.simulate.outcomes import CUT, Objectives
from ops.simulate.policies import only
from ops.simulate.service import Service
from schemas import RouterConfig
from tests.ops.simulate.worlds import METHODS, workload_of, world_of

NAIVE, NGRAM = range(2)


class SlowNgram:
    """A step of ngram takes 0.3 s, one of naive 0.01 s; a prompt takes no time to read."""

    def prefill(self, _method, _prompt_tokens, /):
        return 1e-3

    def step(self, counts, _context, _rows, /):
        return 0.3 if counts[NGRAM] else 0.01


def run(world, arrivals, prompts):
    service = Service(world, [METHODS], only("naive"), {})
    return service.run(np.asarray(arrivals, float), np.asarray(prompts), seed=0)


def test_an_answer_ends_with_the_step_in_which_its_client_leaves():
    """Prompts are read in 0.5 s, a step takes 1 s, one row. The first client leaves at 3.2, in the
    step that ends at 3.5. The second waits until then. The third leaves while its prompt is read,
    the fourth while it waits."""
    world = replace(world_of(workload_of((9, 9), (2, 2)), rows=1), patience=3.2)
    found = run(world, [0.0, 3.0, 3.1, 3.11], [0, 1, 1, 1])
    assert found.method.tolist() == [CUT, NAIVE, CUT, CUT]
    assert found.admitted[1] == pytest.approx(3.5)
    assert found.last[1] == pytest.approx(6.0)
    assert found.usage[0].busy == pytest.approx(6.5)
    figures = found.figures(METHODS, Objectives())
    assert (figures["cut_off"], figures["refused"], figures["answered"]) == (3, 0, 1)


@pytest.mark.parametrize(("patience", "answered"), [(4.2, True), (3.2, False), (0.2, False)])
def test_an_answer_whose_last_step_is_under_way_is_complete(patience, answered):
    world = replace(world_of(workload_of((4, 4))), patience=patience)
    found = run(world, [0.0], [0])
    assert bool(found.method[0] == NAIVE) is answered
    assert found.usage[0].busy == pytest.approx({4.2: 4.5, 3.2: 3.5, 0.2: 0.5}[patience])


def asked(world, methods=METHODS):
    service = Service(world, [methods], Routed(world.table, world.router, 0), {})
    counts = Counter()
    ordered = Learning.ordered

    def counted(self, *given):
        names = ordered(self, *given)
        counts[names[0]] += 1
        return names

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "ordered", counted)
        service.run(np.arange(100) * 3.0, np.ones(100, int), seed=0)
    return counts


def test_clients_that_leave_teach_that_a_method_is_slow():
    """The table holds ngram for the fastest. No answer of it is ever complete."""
    slow = world_of(workload_of((60, 10), (60, 10)), costs=SlowNgram())
    slow = replace(slow, router=RouterConfig(), flush_seconds=0.5, patience=1.0)
    assert asked(slow)["naive"] > 90
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "cut", lambda *_: None)
        assert asked(slow)["ngram"] > 90


def test_routing_knows_the_deadline():
    """By the table ngram takes 0.14 s and naive 0.6 s, so that only it is asked."""
    world = world_of(workload_of((60, 10), (60, 10), max_tokens=61))
    router = world.router.model_copy(update={"pinned_clusters": {1: "naive"}})
    world = replace(world, router=router, flush_seconds=1e9)
    assert asked(world)["naive"] == 100
    assert asked(replace(world, deadline=0.3))["ngram"] == 100
    assert asked(replace(world, patience=0.3))["naive"] == 100


def test_an_answer_teaches_as_far_as_it_came():
    """Its first token is out at 0.5 s, then a step takes 1 s. The third one ends at 3.5."""
    world = replace(world_of(workload_of((9, 9))), flush_seconds=1e9, patience=3.2)
    service = Service(world, [("naive",)], Routed(world.table, world.router, 0), {})
    seen = []
    service.learning._observe = lambda _now, _decision, stats: seen.append(stats)
    service.run(np.zeros(1), np.zeros(1, int), seed=0)
    (stats,) = seen
    assert (stats.output_tokens, stats.target_steps) == (4, 4)
    assert stats.decode_seconds == pytest.approx(3.0)
    assert stats.finish_reason == "cancelled"
