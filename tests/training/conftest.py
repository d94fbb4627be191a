"""A target that knows the counting language, trained once for all tests, and its answers."""

from pathlib import Path
from typing import Any

import pytest

from schemas import Sample
from tests.training.counting import make_samples, save_bundle, train_counting


@pytest.fixture(scope="session")
def counting() -> Any:
    return train_counting()


@pytest.fixture(scope="session")
def bundle(counting: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bundle(counting, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="session")
def samples() -> list[Sample]:
    return make_samples(240)
