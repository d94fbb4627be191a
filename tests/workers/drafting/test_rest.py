"""When drafters are asked again."""

from workers.drafting.goodput import Choice
from workers.drafting.rest import STEPS, Rest


def chosen(hope: float, length: int = 0) -> Choice:
    return Choice([length], None, [], 1.0, [0.0], hope=hope)


def test_who_could_not_win_rests_for_some_steps() -> None:
    rest = Rest()
    rest.after((1,), chosen(0.5))
    assert [rest.lasts((1,)) for _ in range(STEPS)] == [True] * (STEPS - 1) + [False]


def test_who_came_near_is_asked_at_once() -> None:
    rest = Rest()
    rest.after((1,), chosen(0.99))
    assert not rest.lasts((1,))


def test_beside_look_ups_nobody_rests() -> None:
    """They come and go: without them a drafter may pay in the next step."""
    rest = Rest()
    rest.after((1,), chosen(0.5, length=4))
    assert not rest.lasts((1,))


def test_another_batch_ends_it() -> None:
    rest = Rest()
    rest.after((1, 2), chosen(0.5))
    assert not rest.lasts((1,))
    assert not rest.lasts((1, 2))
