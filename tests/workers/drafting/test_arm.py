"""What is expected of a learned drafter, by what it did."""

from types import SimpleNamespace
from typing import Any

import pytest

from workers.drafting.arm import Arm


def sequence(number: int = 0, **accepted: float) -> Any:
    return SimpleNamespace(id=number, accepted=accepted)


def arm(levels: int = 3) -> Arm:
    return Arm("eagle3", levels, priors=True)


def test_more_levels_never_promise_less() -> None:
    promised = [arm().expected(sequence(), levels) for levels in (1, 2, 3)]
    assert promised == sorted(promised)
    assert promised[0] > 0.0


def test_it_begins_with_what_the_router_expects() -> None:
    assert arm().expected(sequence(eagle3=0.6), 3) == pytest.approx(0.6)
    assert arm().expected(sequence(eagle3=9.0), 3) == 3.0, "no more than it drafts"


def test_a_sequence_speaks_for_itself_first_and_for_the_others_a_little() -> None:
    one = arm()
    before = one.expected(sequence(1), 3)
    for _ in range(30):
        one.saw(sequence(0), accepted=3, levels=3, nodes=5)
    assert one.expected(sequence(0), 3) > 2.9
    assert before < one.expected(sequence(1), 3) < one.expected(sequence(0), 3)
    assert one.nodes(3) == 5.0


def test_deeper_levels_are_learned_of_where_they_were_drafted() -> None:
    one = arm()
    deep = one.expected(sequence(), 3) - one.expected(sequence(), 2)
    for _ in range(30):
        one.saw(sequence(), accepted=1, levels=1, nodes=1)
    assert one.expected(sequence(), 1) > 0.9
    assert one.expected(sequence(), 3) - one.expected(sequence(), 2) == deep


def test_who_sits_out_goes_back_to_the_usual() -> None:
    one, other = arm(), sequence(1)
    for _ in range(5):
        one.saw(sequence(0), accepted=0, levels=3, nodes=5)
    low = one.expected(sequence(0), 3)
    for _ in range(300):
        one.sat_out(sequence(0))
    assert low < one.expected(sequence(0), 3) == pytest.approx(one.expected(other, 3), rel=0.01)
    one.forget(sequence(0))
    assert one.expected(sequence(0), 3) == one.expected(other, 3)
