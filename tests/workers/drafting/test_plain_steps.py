"""When a step does not draft though it would pay."""

from workers.drafting.plain_steps import EVERY, PlainSteps


def test_after_many_drafts_in_a_row_one_step_is_plain() -> None:
    plain = PlainSteps()
    due = [plain.due(True) for _ in range(3 * (EVERY + 1))]
    assert [step for step, one in enumerate(due, start=1) if one] == [
        EVERY + 1,
        2 * (EVERY + 1),
        3 * (EVERY + 1),
    ]


def test_who_has_plain_steps_anyway_is_left_alone() -> None:
    plain = PlainSteps()
    assert not any(plain.due(step % EVERY != 0) for step in range(10 * EVERY))
