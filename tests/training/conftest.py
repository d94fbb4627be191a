"""A target that knows the counting language, trained once for all tests, and its answers."""

from pathlib import Path

import pytest

from schemas import Sample
from tests.training.counting import Counting, make_samples, save_bundle, train_counting


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Counting:
    """Train the target. A test that changes the model works on a copy."""
    return train_counting(tmp_path_factory.mktemp("counting"))


@pytest.fixture(scope="session")
def bundle(counting: Counting, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(counting, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="session")
def samples() -> list[Sample]:
    return make_samples(240)
