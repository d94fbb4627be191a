"""Numbers that are listed in a flag."""

import pytest

from ops.harness.boundary import InputError
from ops.harness.numbers import numbers


def test_numbers_keep_their_order():
    assert numbers("0.8,0,0.8", "--temperatures", "each", lambda _: True) == [0.8, 0.0]


@pytest.mark.parametrize("text", ["", "0.5,0", "-1", "half", "nan", "inf"])
def test_numbers_that_do_not_fit_are_refused(text):
    with pytest.raises(InputError, match="--rates: numbers above 0, separated by commas"):
        numbers(text, "--rates", "numbers above 0", lambda one: 0.0 < one < float("inf"))
