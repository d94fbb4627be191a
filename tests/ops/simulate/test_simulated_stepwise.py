"""Drafts that are chosen at every simulated step, by the controller that serves."""

from dataclasses import replace

import numpy as np
import pytest

from ops.harness.boundary import InputError
from ops.load.policies import only
from ops.simulate.controller import Answer, Controller, Row, Stepwise, stepwise_of
from ops.simulate.outcomes import Objectives
from ops.simulate.overhead import Overhead, ServedRowCosts
from ops.simulate.policies import ADAPTIVE, Fleet, check
from ops.simulate.runs import Load, jobs_of, outcomes_of
from ops.simulate.service import Service
from tests.ops.simulate.worlds import METHODS, PREFILL, Constant, workload_of, world_of
from workers.drafting.names import LOOK_UPS, NOBODY
from workers.methods import get_method
from workers.vllm_engine.drafting.adaptive import Choice, Learned

EAGLE = Learned("eagle3", "eagle3", 4)
PROMPT = 10
TOKENS = 120


class ByRows(Constant):
    """A forward takes a second and a little for each row, a draft a twentieth."""

    def forward(self, _sequences, _context, rows, /):
        return 1.0 + 0.001 * rows

    def drafting(self, _drafter, _forward, /):
        return 0.05


def answer(*, kept=0.0, period=None, greedy=True):
    """TOKENS of an answer, which never repeat or do so after a period; drafts of four levels."""
    said = tuple(i % period if period else i for i in range(TOKENS))
    prompt = tuple(range(5000, 5000 + PROMPT))
    levels = tuple((kept,) * 4 for _ in range(TOKENS - 1))
    return Answer((*prompt, *said), PROMPT, greedy, {"eagle3": levels})


def service(*answers, replicas=1, **world):
    made = world_of(workload_of(*[(TOKENS - 1, TOKENS - 1)] * len(answers)), rows=4, **world)
    made = replace(made, stepwise=Stepwise((EAGLE,), answers, ByRows(), deciding=False))
    return Service(made, [("naive",)] * replicas, only("naive"), {}, stepwise=True)


def figures(outcomes):
    return outcomes.figures(METHODS, Objectives())


def test_drafts_that_hold_are_taken_and_answers_are_whole():
    found = service(answer(kept=1.0)).run(np.zeros(1), np.zeros(1, int), seed=0)
    assert list(found.tokens) == [TOKENS]
    assert found.first[0] == pytest.approx(PREFILL)
    # four draft tokens and the target's own: a fifth of the steps, and a few in which it learns so
    assert found.last[0] - PREFILL < 0.4 * (TOKENS - 1)
    assert found.last[0] - PREFILL > (TOKENS - 1) / 5
    by = figures(found)["drafted_by"]
    assert by["eagle3"] > 0.7
    assert sum(by.values()) == pytest.approx(1.0)


def test_what_repeats_is_looked_up():
    found = service(answer(period=6)).run(np.zeros(1), np.zeros(1, int), seed=0)
    assert list(found.tokens) == [TOKENS]
    assert found.last[0] < 0.5 * TOKENS
    by = figures(found)["drafted_by"]
    assert by[LOOK_UPS] > 2 * by.get("eagle3", 0.0)


def test_where_nothing_holds_steps_are_plain():
    found = service(answer()).run(np.zeros(1), np.zeros(1, int), seed=0)
    assert TOKENS - 1 <= found.last[0] - PREFILL < 1.1 * TOKENS
    assert figures(found)["drafted_by"][NOBODY] > 0.5


def test_many_answers_are_whole_whoever_joins_and_leaves():
    prompts = np.arange(12) % 3
    world = service(answer(kept=1.0), answer(period=5), answer(kept=0.6, greedy=False))
    found = world.run(np.arange(12) * 3.0, prompts, seed=0)
    assert set(found.tokens) == {TOKENS}
    assert np.isfinite(found.last).all()
    assert (found.last > found.first).all()
    assert figures(found)["mean_batch"] > 1.5


def test_a_replica_that_dies_loses_no_token():
    made = service(answer(kept=1.0), replicas=2, kills=(10.0,))
    found = made.run(np.zeros(1), np.zeros(1, int), seed=0)
    assert (list(found.tokens), list(found.failures)) == ([TOKENS], [1])


def test_a_draft_is_kept_as_far_as_the_answer_goes_along():
    row = Row("a", answer(kept=0.5), 1, (0,))
    assert row.held(Choice({0: [1, 2, 9, 4]}), 0, chance=0.0) == 2
    assert row.held(Choice({0: []}), 0, chance=0.0) == 0
    assert row.held(Choice({}, "eagle3", {0: 3}), 0, chance=0.4) == 3
    assert row.held(Choice({}, "eagle3", {0: 3}), 0, chance=0.6) == 0
    row.go_on(drafted=4, held=2)
    assert (row.new, row.said, row.length, row.drafted) == ((1, 2, 3), 4, PROMPT + 4, 4)
    row.go_on(drafted=0, held=TOKENS)
    assert row.ended
    assert row.said == TOKENS, "not beyond the end"


def test_no_answer_is_foretold_from_an_earlier_one():
    """Simulated prompts are drawn again and again."""
    once = service(answer()).run(np.zeros(1), np.zeros(1, int), seed=0)
    again = service(answer()).run(np.array([0.0, 500.0]), np.zeros(2, int), seed=0)
    lasts = again.last - again.arrived
    assert lasts[1] > 0.9 * once.last[0]


def test_deciding_takes_its_seconds_where_asked():
    stepwise = Stepwise((EAGLE,), (answer(),), ByRows())
    free, dear = Controller(replace(stepwise, deciding=False), 0), Controller(stepwise, 0)
    rows = [Row("a", answer(), 1, (0,))]
    assert free.step(rows) == pytest.approx(1.001)
    assert dear.step([Row("a", answer(), 1, (0,))]) > 1.001
    assert free.deciding_seconds == 0.0 < dear.deciding_seconds


def test_overhead_slows_forwards_and_drafts():
    served = ServedRowCosts(ByRows(), Overhead(step_factor=2.0, sequence_seconds=0.1))
    assert served.forward(3, 0.0, 10) == pytest.approx(2.0 * 1.01 + 0.3)
    assert served.drafting("eagle3", 2.0) == pytest.approx(0.1)


def rows_of(**kept):
    common = {"prompt_id": "a", "prompt": [1, 2], "answer": [3, 4, 5], "temperature": 0.0}
    return [{**common, "method": name, "kept": levels} for name, levels in kept.items()]


def test_what_was_traced_on_chains_may_draft():
    methods = [get_method(name) for name in ("naive", "ngram", "eagle3", "medusa")]
    rows = rows_of(naive=[[], []], ngram=[[1.0], []], eagle3=[[1.0, 0.0], [1.0]], medusa=[[], []])
    found = stepwise_of(rows, ["a"], methods, ByRows(), deciding=False)
    assert found.learned == (Learned("eagle3", "eagle3", 2),)
    [one] = found.answers
    assert (one.tokens, one.prompt_tokens, one.greedy) == ((1, 2, 3, 4, 5), 2, True)
    assert set(one.kept) == {"eagle3"}
    assert stepwise_of(rows, ["a"], methods[1:], ByRows(), deciding=False) is None
    assert stepwise_of(rows, ["a"], methods[:2], ByRows(), deciding=False) is None


def test_the_policy_is_a_job_like_others_and_is_refused_where_nothing_is_known():
    world = world_of(workload_of((TOKENS - 1, TOKENS - 1)), rows=4)
    world = replace(world, stepwise=Stepwise((EAGLE,), (answer(kept=1.0),), ByRows(), False))
    load = Load(np.zeros(3), np.zeros(3, int))
    plain, chosen = (
        outcomes_of(world, job)
        for policy in ("only_naive", ADAPTIVE)
        for job in jobs_of(policy, Fleet(1, shared=True), METHODS, load, 0)
    )
    assert "drafted_by" not in figures(plain)
    assert figures(chosen)["drafted_by"]["eagle3"] > 0.5
    check([ADAPTIVE], METHODS, stepwise=True)
    with pytest.raises(InputError, match="chooses drafts at every step, which takes --traces"):
        check([ADAPTIVE], METHODS)
