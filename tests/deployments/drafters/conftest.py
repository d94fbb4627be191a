from pathlib import Path

import pytest

from tests.training.counting import save_bundle, train_counting


@pytest.fixture(scope="package")
def counting_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained target of a language that is learned in seconds, with untrained heads."""
    folder = tmp_path_factory.mktemp("counting")
    return save_bundle(train_counting(folder), folder / "bundle")
