"""What is read before a draft, and how much of it that draft pays."""

import pytest

from workers.drafting.backlog import CATCH_UP, SOON, Backlog
from workers.drafting.step_costs import Draft


def test_a_few_missing_tokens_are_no_backlog() -> None:
    backlog = Backlog.of([0, CATCH_UP - 1, CATCH_UP, 100])
    assert (backlog.sequences, backlog.late, backlog.missing) == (4, 2, CATCH_UP + 100)
    assert Backlog.of([0] * 3).whole(2) == Draft(2, 3, 0, 0)


def test_a_draft_pays_its_part_of_what_is_read() -> None:
    backlog = Backlog.of([100] * 8)
    assert backlog.whole(3) == Draft(3, 8, 8, 800)
    half = backlog.part(3, 4)
    assert (half.levels, half.sequences) == (3, 4)
    assert half.missing == pytest.approx(400 / SOON)
