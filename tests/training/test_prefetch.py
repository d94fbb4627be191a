"""Batches are made ahead, in order."""

from itertools import count, islice
from threading import Event

import pytest

from training.prefetch import prefetched


def test_items_come_in_order_and_later_ones_are_made_meanwhile() -> None:
    fourth = Event()

    def numbers():
        for number in count():
            if number == 3:
                fourth.set()
            yield number

    stream = prefetched(numbers(), depth=3)
    assert next(stream) == 0
    assert fourth.wait(60), "made before it is asked for"
    assert list(islice(stream, 20)) == list(range(1, 21))


def test_what_fails_in_the_thread_fails_at_its_place() -> None:
    def failing():
        yield 1
        raise OSError("no disk")

    stream = prefetched(failing(), depth=4)
    assert next(stream) == 1
    with pytest.raises(OSError, match="no disk"):
        next(stream)
