"""Numbers that are listed in a flag."""

import pytest

from ops.harness.boundary import InputError
from ops.harness.numbers import load_shares, numbers, whole_numbers


def test_whole_numbers_rise_and_come_once():
    assert whole_numbers("16, 1,4,1", "--batches", 1) == [1, 4, 16]
    assert whole_numbers("0", "--gammas", 0) == [0]


@pytest.mark.parametrize("text", ["", ",", "1,", "0", "-4", "1,x", "1.5", "²"])
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(InputError, match="--batches: whole numbers of 1 or more"):
        whole_numbers(text, "--batches", 1)


def test_numbers_keep_their_order():
    assert numbers("0.8,0,0.8", "--temperatures", "each", lambda _: True) == [0.8, 0.0]


@pytest.mark.parametrize("text", ["", "0.5,0", "-1", "half", "nan", "inf"])
def test_shares_are_above_nothing(text):
    with pytest.raises(InputError, match="--shares: numbers above 0, separated by commas"):
        load_shares(text)
