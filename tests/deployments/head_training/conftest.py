import pytest
from stored_heads import head, origin, store
from tuning_setting import Setting

from deployments.head_training import canaries, trainer
from deployments.head_training import trainer as training
from tests.training.counting import save_bundle, train_counting


@pytest.fixture(scope="package")
def counting_bundle(tmp_path_factory):
    """A trained target of a language that is learned in seconds, with untrained heads."""
    folder = tmp_path_factory.mktemp("counting")
    return save_bundle(train_counting(), folder / "bundle")


@pytest.fixture
def setting(counting_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(trainer, "ROUND_TOKENS", 1000)
    monkeypatch.setattr(training, "PASSES", 15)
    return Setting(counting_bundle, tmp_path)


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """A version store whose version 1 is a canary."""
    monkeypatch.setattr(canaries, "LOOK_SECONDS", 0.0)
    kept = store(str(tmp_path / "state"))
    kept.add(head(tmp_path / "head"), origin())
    kept.try_out(1, 0.1)
    return kept
