"""A store of samples that takes files and deletes none."""

from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from sampled import sample

from deployments.drafters.samples import TIDY_SECONDS, Samples
from schemas import FeedbackConfig


class Keeping(MemoryFileSystem):
    """A store in memory that deletes nothing while `refuses`."""

    protocol = "keeping"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    refuses = False

    def rm_file(self, path: str) -> None:
        if Keeping.refuses:
            raise PermissionError("access denied")
        super().rm_file(path)


fsspec.register_implementation("keeping", Keeping, clobber=True)


@pytest.fixture(autouse=True)
def _emptied() -> Iterator[None]:
    Keeping.store.clear()
    Keeping.refuses = True
    yield
    Keeping.refuses = False


def test_a_store_that_deletes_nothing_is_not_filled_with_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 1000.0
    samples = Samples(FeedbackConfig(state_uri="keeping://state"), "tiny", lambda: now)
    for name in "ab":
        samples.take()
        samples.take([sample(name)])
    assert len(Keeping.store) == 2
    for tidying in range(1, 4):
        now = 1000.0 + tidying * TIDY_SECONDS
        for second in range(10):
            now += 5.0
            samples.take([sample(f"{tidying} {second}")] if second < 2 else [])
    # Two before, one rewritten, and two after each time.
    assert len(Keeping.store) <= 9
    assert samples.stats().problem is not None
    assert caplog.text.count("the store keeps samples that have expired") == 1
    again = Samples(FeedbackConfig(state_uri="keeping://state"), "tiny", lambda: now)
    assert {each.id for each in again.stored()} == {each.id for each in samples.kept()}

    Keeping.refuses = False
    now += TIDY_SECONDS
    samples.take()
    assert samples.stats().problem is None
    assert len(Keeping.store) == 1
    assert {each.id for each in again.stored()} == {each.id for each in samples.kept()}
