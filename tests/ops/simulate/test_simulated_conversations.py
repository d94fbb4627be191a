"""Simulated conversations, and ingresses that each know a part of the load."""

from dataclasses import replace

import numpy as np
import pytest

from ops.load.policies import only
from ops.simulate.outcomes import REFUSED, Objectives
from ops.simulate.replicas.kept_rows import KeptRows
from ops.simulate.service import THINK_SECONDS, Service
from tests.ops.simulate.worlds import Constant, workload_of, world_of

NAIVE = ("naive",)
PROMPT, STEPS = 40, 60


class ByToken(Constant):
    """A prompt's token takes 10 ms, and so does a step."""

    def __init__(self):
        super().__init__(0.01)

    def prefill(self, _method, prompt_tokens, /):
        return prompt_tokens / 100.0


def run(world, replicas, arrivals):
    service = Service(world, [NAIVE] * replicas, only("naive"), {})
    arrivals = np.asarray(arrivals, float)
    return service.run(arrivals, np.zeros(len(arrivals), int), seed=0)


def talking(turns, costs=None, waiting=64, steps=STEPS):
    workload = workload_of((steps, steps), prompt=PROMPT)
    return replace(world_of(workload, costs=costs or ByToken(), waiting=waiting), turns=turns)


def test_a_turn_is_asked_after_the_one_before_and_reads_what_is_new():
    found = run(talking(3), 1, [0.0])
    assert found.turn.tolist() == [0, 1, 2]
    assert found.arrived[1:] == pytest.approx(found.last[:2] + THINK_SECONDS)
    assert found.first - found.arrived == pytest.approx(PROMPT / 100.0)
    assert found.tokens.tolist() == [1 + STEPS] * 3


def test_conversations_return_to_the_replica_that_holds_them():
    """Replicas that report no prefixes read the whole conversation again, unless chance helps."""
    arrivals = np.arange(20) * 2.0
    told = run(talking(2), 4, arrivals)
    blind = run(replace(talking(2), report_prefixes=False), 4, arrivals)
    again = told.turn == 1
    seconds, blindly = ((one.first - one.arrived)[again].mean() for one in (told, blind))
    assert seconds == pytest.approx(PROMPT / 100.0, rel=0.1)
    assert seconds < 0.6 * blindly


def test_no_turn_follows_a_refused_one_or_exceeds_the_context():
    refused = run(talking(2, Constant(), waiting=0), 1, [0.0, 0.1, 0.2])
    assert refused.method[4] == REFUSED
    assert np.isnan(refused.arrived).tolist() == [False] * 5 + [True]
    long = run(talking(50, steps=600), 1, [0.0])
    assert np.isfinite(long.arrived).sum() == 2, "a third turn does not fit into 2,048 tokens"
    assert long.figures(NAIVE, Objectives())["requests"] == 2


def test_the_longest_unused_row_is_given_away():
    kept = KeptRows(3)
    for name in "abc":
        kept.keep(name, (0,) * 100)
    assert len(kept.hashes()) == 4 * 9
    assert kept.take("b", 1) == 100
    assert kept.take("a", 2) == 100
    kept.keep("a", (0,) * 120)
    assert kept.take("d", 3) == 0
    assert [kept.take(name, 0) for name in "abc"] == [0, 0, 0]


@pytest.mark.parametrize(("seconds", "spoilt"), [(0.0, False), (5.0, True)])
def test_an_ingress_learns_from_reports_alone_what_the_others_have_sent(seconds, spoilt):
    """Requests arrive once a second and keep ten of the replicas busy."""
    arrivals = np.arange(200) * 1.0
    workload = workload_of((100, 100))
    world = replace(world_of(workload, rows=1, costs=Constant(0.1)), report_seconds=seconds)
    one, many = (run(replace(world, ingresses=n), 14, arrivals) for n in (1, 4))
    took = [(found.last - found.arrived).mean() for found in (one, many)]
    assert took[0] == pytest.approx(10.5, abs=0.1), "one ingress knows nearly everything"
    assert (took[1] > 11.0) == spoilt
