"""A target that knows the counting language, trained once for all tests."""

import pytest

from tests.training.counting import Counting, train_counting


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """Train the target. A test that changes the model works on a copy."""
    return train_counting(tmp_path_factory.mktemp("counting"))
