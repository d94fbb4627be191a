"""How much better or worse than usual a sequence's drafts do."""

import pytest

from workers.drafting.ease import Ease


def test_who_was_not_seen_is_as_usual() -> None:
    assert Ease().of("a") == 1.0


def test_what_comes_counts_more_the_more_was_expected() -> None:
    ease = Ease()
    ease.saw("a", came=3, expected=1.0)
    some = ease.of("a")
    for _ in range(200):
        ease.saw("a", came=3, expected=1.0)
    assert 1.0 < some < 2.0 < ease.of("a") < 3.0
    assert ease.of("b") == 1.0
    for _ in range(200):
        ease.saw("a", came=0, expected=1.0)
    assert ease.of("a") < 0.3, "the newest drafts count most"


def test_shares_stay_shares() -> None:
    ease = Ease()
    assert ease.shares("a", [0.7, 0.2]) == pytest.approx([0.7, 0.2])
    ease.saw("a", came=60, expected=20.0)
    more, most = ease.shares("a", [0.7, 0.95])
    assert 0.7 < more < most < 1.0
    ease.saw("b", came=0, expected=20.0)
    assert 0.0 < ease.shares("b", [0.3])[0] < 0.3


def test_what_is_forgotten() -> None:
    ease = Ease()
    ease.saw("a", came=0, expected=6.0)
    assert ease.of("a") == pytest.approx(0.5)
    ease.fade("a", 0.5)
    assert 0.5 < ease.of("a") < 1.0
    ease.forget("a")
    assert ease.of("a") == 1.0
