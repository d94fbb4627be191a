"""When drafters are asked again."""

from dataclasses import replace

from workers.drafting.goodput import Choice
from workers.drafting.rest import DECIDING, STEPS, Rest


def chosen(hope: float, length: int = 0) -> Choice:
    return Choice([length], None, [], 1.0, [0.0], hope=hope)


def test_who_could_not_win_rests_for_some_steps() -> None:
    rest = Rest()
    rest.after((1,), chosen(0.5), 0.0)
    assert [rest.lasts((1,)) for _ in range(STEPS)] == [True] * (STEPS - 1) + [False]


def test_who_came_near_is_asked_at_once() -> None:
    rest = Rest()
    rest.after((1,), chosen(0.99), 0.0)
    assert not rest.lasts((1,))


def test_beside_look_ups_nobody_rests() -> None:
    """They come and go: without them a drafter may pay in the next step."""
    rest = Rest()
    rest.after((1,), chosen(0.5, length=4), 0.0)
    assert not rest.lasts((1,))


def test_another_batch_ends_it() -> None:
    rest = Rest()
    rest.after((1, 2), chosen(0.5), 0.0)
    assert not rest.lasts((1,))
    assert not rest.lasts((1, 2))


def test_the_longer_they_are_weighed_the_less_often() -> None:
    rest = Rest()
    rest.after((1,), chosen(1.0, length=4), 4 * DECIDING)
    assert [rest.lasts((1,)) for _ in range(5)] == [True] * 3 + [False] * 2
    rest.after((1,), chosen(1.0, length=4), 100.0)
    assert sum(rest.lasts((1,)) for _ in range(2 * STEPS)) == STEPS - 1


def test_a_drafter_that_is_taken_goes_on_where_weighing_takes_long() -> None:
    rest, without = Rest(), chosen(0.0, length=2)
    taken = replace(chosen(1.0), offer=1, taken=[0], goodput=7.0, promised=3.0)
    rest.after((1,), taken, 0.0)
    assert not rest.lasts((1,))
    rest.after((1,), taken, 3 * DECIDING)
    assert rest.lasts((1,))
    going_on = rest.goes_on(without)
    assert (going_on.offer, going_on.taken, going_on.goodput) == (1, [0], 7.0)
    assert (going_on.known, going_on.promised) == (without.known, 0.0)
    assert rest.lasts((1,))
    assert not rest.lasts((1,))


def test_where_none_was_taken_none_goes_on() -> None:
    rest, without = Rest(), chosen(0.0, length=2)
    rest.after((1,), chosen(1.0), 3 * DECIDING)
    assert rest.goes_on(without) is without
