"""What answers say of steps: alone, in full batches, and in batches that methods share."""

import numpy as np
import pytest
from routing_world import METHODS, observe

from router import predict
from router.fit.promotion import promoted
from router.learner import Learner
from router.predict import FULL_BATCH, batch_fullness
from schemas import RoutingTable
from schemas.observation import WARM_UP

NAIVE, DRAFT, NGRAM = range(3)
CONTEXT = 81
STEPS = 20


def observation(table: RoutingTable, identity: str, by_method: dict[str, float], step: float):
    """An answer of the first of these methods, whose steps took so long in such a batch."""
    measured = {
        "target_steps": STEPS + 1,
        "decode_seconds": STEPS * step,
        "mean_batch": sum(by_method.values()),
        "batch_by_method": by_method,
    }
    made = observe(table, identity, next(iter(by_method)), 0, **measured)
    return made.model_copy(update={"cluster": -1})


class Machine:
    """One on which each method's steps take so many times as long as measured, alone and in a full
    batch, and a mixed batch's what its sequences' methods take on the mean."""

    def __init__(self, table: RoutingTable, alone: list[float], full: list[float]) -> None:
        self._table, self._ends = table, np.log([alone, full])

    def ratio(self, method: int, batch: float) -> float:
        low, high = self._ends[:, method]
        return float(np.exp(low + (high - low) * batch_fullness(batch)))

    def step(self, by_method: dict[str, float]) -> float:
        batch = sum(by_method.values())
        times = predict.StepTimes(self._table, CONTEXT - (CONTEXT - 20) / 2)
        counts = {METHODS.index(name): count for name, count in by_method.items()}
        took = (n * times.of(m, batch) * self.ratio(m, batch) for m, n in counts.items())
        return sum(took) / batch


def told(
    table: RoutingTable, machine: Machine, *batches: dict[str, float], warm_up: int = 0
) -> RoutingTable:
    """Return the table after answers in these batches, the first `warm_up` of a warm-up."""
    learner = Learner(table)
    for i, batch in enumerate(batches):
        made = observation(table, str(i), batch, machine.step(batch))
        policy = WARM_UP if i < warm_up else made.policy
        learner.observe([made.model_copy(update={"policy": policy})])
    return learner.table


def test_a_method_is_known_alone_and_in_full_batches(table: RoutingTable) -> None:
    """A head that is cheap alone and dear in a crowd, as no single factor says."""
    machine = Machine(table, [1.0, 0.7, 1.0], [1.0, 2.0, 1.0])
    one_each = [{name: batch} for name in METHODS for batch in (1.0, FULL_BATCH)]
    found = told(table, machine, *one_each * 9)
    for m in range(len(METHODS)):
        for batch in (1.0, 3.0, FULL_BATCH, 16.0):
            expected = machine.ratio(m, batch)
            assert predict.step_ratio(found, m, batch) == pytest.approx(expected, rel=0.1)


def test_batches_that_methods_share_say_something_of_each(table: RoutingTable) -> None:
    """No batch is of one method alone, and still it is found out which of them is slow."""
    machine = Machine(table, [1.0, 1.0, 1.0], [0.6, 1.8, 0.6])
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(400):
        counts = rng.multinomial(int(FULL_BATCH), rng.dirichlet([0.7, 0.7, 0.7]))
        batches.append({n: float(c) for n, c in zip(METHODS, counts, strict=True) if c})
    found = told(table, machine, *batches)
    for m in range(len(METHODS)):
        expected = machine.ratio(m, FULL_BATCH)
        assert predict.step_ratio(found, m, FULL_BATCH) == pytest.approx(expected, rel=0.15)
    order = [predict.step_ratio(found, m, FULL_BATCH) for m in (DRAFT, NAIVE)]
    assert order[0] > 2.0 * order[1]


def test_a_slow_sequence_among_many_of_a_known_method_is_found_out(table: RoutingTable) -> None:
    """Half of the batches are of one method, half have one sequence of a slow one too. Its 3.0 was
    seen as 1.2 after 100 answers."""
    machine = Machine(table, [1.0, 3.0, 1.0], [1.0, 3.0, 1.0])
    batches = [{"naive": FULL_BATCH}, {"naive": FULL_BATCH - 1.0, "draft": 1.0}]
    found = told(table, machine, *batches * 50)
    assert predict.step_ratio(found, DRAFT, FULL_BATCH) > 2.3
    assert predict.step_ratio(found, NAIVE, FULL_BATCH) == pytest.approx(1.0, rel=0.1)


def test_a_mixed_batch_that_is_as_expected_teaches_nothing(table: RoutingTable) -> None:
    machine = Machine(table, [1.0] * 3, [1.0] * 3)
    found = told(table, machine, *[{"naive": 3.0, "draft": 2.0}] * 20)
    np.testing.assert_allclose(found.live.step_ratio, 1.0, rtol=1e-6)
    np.testing.assert_allclose(found.live.batch_ratio, 1.0, rtol=1e-6)
    assert found.live.step_weight[NAIVE] > found.live.step_weight[DRAFT] > 0.0
    assert found.live.step_weight[NGRAM] == 0.0


def test_what_is_as_expected_in_between_overwrites_neither_end(table: RoutingTable) -> None:
    """Warm-up has told of both; then nobody meets anything but batches of two for long."""
    machine = Machine(table, [1.0, 1.0, 1.0], [1.0, 3.0, 1.0])
    told_first = [{name: batch} for name in METHODS for batch in (1.0, FULL_BATCH)] * 3
    found = told(table, machine, *told_first, *[{"draft": 2.0}] * 60, warm_up=len(told_first))
    assert predict.step_ratio(found, DRAFT, 2.0) == pytest.approx(machine.ratio(DRAFT, 2), rel=0.1)
    assert predict.step_ratio(found, DRAFT, 1.0) == pytest.approx(1.0, rel=0.15)
    assert predict.step_ratio(found, DRAFT, FULL_BATCH) == pytest.approx(3.0, rel=0.2)


def test_steps_that_are_expected_to_take_no_time_teach_nothing(table: RoutingTable) -> None:
    nothing = table.model_copy(update={"step_seconds": np.zeros_like(table.step_seconds)})
    learner = Learner(nothing)
    assert learner.observe([observation(nothing, "a", {"naive": 1.0}, 0.1)])
    np.testing.assert_array_equal(learner.table.live.step_ratio, 1.0)


def test_a_promoted_table_keeps_what_full_batches_take(table: RoutingTable) -> None:
    machine = Machine(table, [1.0, 2.0, 1.0], [1.0, 0.5, 1.0])
    one_each = [{name: batch} for name in METHODS for batch in (1.0, FULL_BATCH)]
    found = told(table, machine, *one_each * 8)
    made = promoted(found)
    before, after = (predict.StepTimes(t, CONTEXT) for t in (found, made))
    for batch in (1.0, 3.0, FULL_BATCH, 100.0):
        for m in range(len(METHODS)):
            assert after.of(m, batch) == pytest.approx(before.of(m, batch))
