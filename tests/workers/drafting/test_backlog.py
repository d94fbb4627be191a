"""What is read before a draft, and how much of it that draft pays."""

from workers.drafting.backlog import CATCH_UP, Backlog
from workers.drafting.draft_seconds import Draft


def test_a_few_missing_tokens_are_no_backlog() -> None:
    backlog = Backlog.of([0, CATCH_UP - 1, CATCH_UP, 100])
    assert (backlog.sequences, backlog.late, backlog.missing) == (4, 2, CATCH_UP + 100)
    assert Backlog.of([0] * 3).whole(2) == Draft(2, 3, 0, 0)


def test_of_some_sequences_a_part_is_read() -> None:
    assert Backlog.of([100] * 8).part(3, 4) == Draft(3, 4, 4, 400)
