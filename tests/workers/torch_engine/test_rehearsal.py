"""What drafting costs is known before anybody is served."""

import pytest
from static_twins import in_static_shapes

from workers.bundle import Bundle
from workers.drafting.expectation import OPTIMISM
from workers.drafting.step_costs import Draft
from workers.torch_engine import rehearsal
from workers.torch_engine.drafters.feature_drafter import FeatureDrafter
from workers.torch_engine.models.static_steps import RECURRING, StaticSteps


def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Draft]]:
    """By drafter the drafts whose seconds the costs were told at the next loads."""
    found: dict[str, list[Draft]] = {}

    def saw_drafting(_: object, drafter: str, draft: Draft, seconds: float) -> None:
        assert seconds > 0.0
        found.setdefault(drafter, []).append(draft)

    monkeypatch.setattr("workers.drafting.step_costs.StepCosts.saw_drafting", saw_drafting)
    return found


def test_each_learned_drafter_drafts_alone_in_batches_and_behind_prompts(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = told(monkeypatch)
    make_rig(byte_bundle, ["adaptive", "adaptive_length", "eagle3"], max_batch=4)
    assert found.keys() == {"medusa", "eagle3"}
    for drafts in found.values():
        sizes = {(draft.levels, draft.sequences) for draft in drafts}
        assert sizes == {(levels, count) for levels in rehearsal.LEVELS for count in (1, 4)}
        assert {draft.late for draft in drafts} == {0, 1, 4}


def test_nobody_rehearses_where_nobody_decides(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = told(monkeypatch)
    make_rig(byte_bundle, ["eagle3", "suffix"])
    assert not found


@pytest.mark.parametrize("settings", [{}, {"max_batch": 1}, {"max_context": 24}])
def test_nothing_is_left_of_it(make_rig, byte_bundle: Bundle, settings: dict[str, int]) -> None:
    rig = make_rig(byte_bundle, ["adaptive"], **settings)
    assert rig.pool.free_rows == rig.pool.rows
    method = rig.scheduler._methods["adaptive"]
    for one in method.plan.drafter.learned.values():
        assert not one.drafter._states
        assert one.expectation.trust == OPTIMISM
        if isinstance(one.drafter, FeatureDrafter):
            assert one.drafter.pool.free_rows == one.drafter.pool.rows
    step = rig.engine._target.costs.step
    assert step._slower.weights.any(), "steps of several sequences were seen"


def test_what_counts_was_captured_before(
    make_rig, byte_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where shapes are captured when they recur, nobody counts the seconds of a capture."""
    run, step = StaticSteps.run, rehearsal._Rehearsal._step
    counting, captures = [False], list[bool]()

    def noted(self: StaticSteps, key: object, inputs: object, compute: object) -> object:
        said = run(self, key, inputs, compute)
        captures.append(counting[0] and self._shapes[key].uses <= RECURRING)
        return said

    def counted(*args: object, counted: bool = True, **more: object) -> float:
        counting[0] = counted
        seconds = step(*args, counted=counted, **more)
        counting[0] = False
        return seconds

    monkeypatch.setattr(StaticSteps, "run", noted)
    monkeypatch.setattr(rehearsal._Rehearsal, "_step", counted)
    with in_static_shapes():
        make_rig(byte_bundle, ["adaptive"], max_batch=4)
    assert len(captures) > 100
    assert not any(captures)
