from pathlib import Path

import pytest
from tuning_setting import Setting

from deployments.drafters import rounds
from deployments.drafters import trainer as training
from tests.training.counting import save_bundle, train_counting


@pytest.fixture(scope="package")
def counting_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained target of a language that is learned in seconds, with untrained heads."""
    folder = tmp_path_factory.mktemp("counting")
    return save_bundle(train_counting(folder), folder / "bundle")


@pytest.fixture
def setting(counting_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr(training, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rounds, "ROUND_TOKENS", 1000)
    monkeypatch.setattr(training, "PASSES", 15)
    return Setting(counting_bundle, tmp_path)
