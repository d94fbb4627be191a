"""What `adaptive` learned is stored, and loaded at half weight by the same setting only."""

import json
from pathlib import Path

import pytest

from workers.bundle import Bundle
from workers.drafting import learned_state
from workers.drafting.estimates import Estimates
from workers.drafting.learned_state import LearnedState, key_of

KEY = {"threads": "2"}


def learned(folder: Path, key: dict[str, str] = KEY) -> Estimates:
    """Return estimates that begin with what is stored for a key."""
    estimates = Estimates()
    LearnedState(folder, key, estimates)
    return estimates


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    estimates = Estimates()
    state = LearnedState(tmp_path / "new", KEY, estimates)
    for _ in range(10):
        estimates.of("level", True, 1).saw(0.0)
    state.store(now=True)
    return tmp_path / "new"


def test_the_next_start_begins_with_half_of_it_and_another_setting_with_nothing(stored):
    assert learned(stored).of("level", True, 1).expected == 5.0
    assert learned(stored, {"threads": "1"}).of("level", True, 1).expected == 0.0
    estimates = Estimates()
    known = estimates.of("level", True, 1)
    LearnedState(stored, KEY, estimates)
    assert known.expected == 5.0, "also where it is known already"


def test_what_is_not_asked_for_is_stored_again(stored):
    estimates = Estimates()
    LearnedState(stored, KEY, estimates).store(now=True)
    assert learned(stored).of("level", True, 1).expected == 2.5


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: "no JSON",
        lambda _: "[]",
        lambda body: json.dumps(body | {"key": {}}),
        lambda body: json.dumps(body | {"estimates": [["level", -1.0, 2.0]]}),
        lambda body: json.dumps(body | {"estimates": [["level", float("nan"), 2.0]]}),
        lambda body: json.dumps(body | {"estimates": [[]]}),
        lambda body: json.dumps(body | {"estimates": [[["level"], 1.0, 2.0]]}),
    ],
)
def test_a_damaged_or_foreign_file_costs_a_warning(stored, caplog, spoil):
    [file] = stored.iterdir()
    file.write_text(spoil(json.loads(file.read_text())))
    assert not learned(stored).dump()
    assert "begins without" in caplog.text


def test_it_is_stored_once_a_minute_and_a_full_disk_costs_a_warning(tmp_path, monkeypatch, caplog):
    now = 0.0
    monkeypatch.setattr(learned_state.time, "monotonic", lambda: now)
    estimates = Estimates()
    state = LearnedState(tmp_path, KEY, estimates)
    state.store()
    assert not [*tmp_path.iterdir()]
    now += learned_state.INTERVAL_SECONDS
    state.store()
    assert len([*tmp_path.iterdir()]) == 1
    (tmp_path / "file").touch()
    LearnedState(tmp_path / "file", KEY, estimates).store(now=True)
    assert "is not stored" in caplog.text


def test_the_key_names_bundle_dtype_threads_and_instructions(tiny_bundle: Bundle, monkeypatch):
    keys = [key_of(tiny_bundle, "q4", 2, "cpu"), key_of(tiny_bundle, "q4", 1, "cpu")]
    keys.append(key_of(tiny_bundle, "float32", 2, "cpu"))
    keys.append(key_of(tiny_bundle, "q4", 2, "NVIDIA H200"))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    keys.append(key_of(tiny_bundle, "q4", 2, "cpu"))
    assert len({json.dumps(key) for key in keys}) == len(keys)
