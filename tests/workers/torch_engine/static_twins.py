"""The same in exact shapes and in static ones, on this CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workers.torch_engine.models import static_steps


@contextmanager
def in_static_shapes() -> Iterator[None]:
    """What is loaded in here computes in static shapes, as on CUDA, without graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_steps, "DEVICES", frozenset({"cpu"}))
        yield
