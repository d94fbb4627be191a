"""Numbers that are listed in a flag."""

import pytest

from ops.harness.boundary import InputError
from ops.harness.numbers import load_shares, numbers


def test_numbers_keep_their_order():
    assert numbers("0.8,0,0.8", "--temperatures", "each", lambda _: True) == [0.8, 0.0]


@pytest.mark.parametrize("text", ["", "0.5,0", "-1", "half", "nan", "inf"])
def test_shares_are_above_nothing(text):
    with pytest.raises(InputError, match="--shares: numbers above 0, separated by commas"):
        load_shares(text)
