"""`dtype: auto`: which precision is chosen, and that it is measured once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from workers.bundle import Bundle
from workers.torch_engine import precision
from workers.torch_engine.engine import TorchEngine

CPU = torch.device("cpu")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "specadapt" / "precision"


def times(monkeypatch: pytest.MonkeyPatch, bfloat16: float, float32: float) -> list[torch.dtype]:
    """Every forward takes so long, by the model's precision; what was timed, in order."""
    timed: list[torch.dtype] = []

    def milliseconds(model: precision.Llama) -> list[float]:
        timed.append(model.dtype)
        return [bfloat16 if model.dtype == torch.bfloat16 else float32] * 6

    monkeypatch.setattr(precision, "_milliseconds", milliseconds)
    return timed


@pytest.mark.parametrize(
    ("bfloat16", "float32", "expected"),
    [(10.0, 5.0, "float32"), (10.0, 9.5, "bfloat16"), (5.0, 10.0, "bfloat16")],
    ids=["slow bfloat16", "near equals", "slow float32"],
)
def test_the_sooner_precision_is_chosen_and_the_narrower_of_near_equals(
    byte_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    bfloat16: float,
    float32: float,
    expected: str,
) -> None:
    times(monkeypatch, bfloat16, float32)
    assert precision.measure(byte_bundle.part("target"), threads=1)["dtype"] == expected


def test_it_is_measured_once_for_a_model_on_so_many_threads(
    byte_bundle: Bundle, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = times(monkeypatch, 10.0, 5.0)
    assert precision.chosen("auto", byte_bundle, CPU, threads=1) == "float32"
    once = len(timed)
    [kept] = cache.glob("*.json")
    assert json.loads(kept.read_text())["milliseconds"].keys() == {"bfloat16", "float32"}
    assert precision.chosen("auto", byte_bundle, CPU, threads=1) == "float32"
    assert len(timed) == once
    precision.chosen("auto", byte_bundle, CPU, threads=2)
    assert len(timed) == 2 * once


def test_a_spoilt_measurement_is_made_again(
    byte_bundle: Bundle, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times(monkeypatch, 10.0, 5.0)
    precision.chosen("auto", byte_bundle, CPU, threads=1)
    [kept] = cache.glob("*.json")
    kept.write_text('{"dtype"')
    assert precision.chosen("auto", byte_bundle, CPU, threads=1) == "float32"
    assert json.loads(kept.read_text())["dtype"] == "float32"


def test_where_nothing_may_be_written_it_is_measured_each_time(
    byte_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user has no home."""
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    timed = times(monkeypatch, 10.0, 5.0)
    for tries in (1, 2):
        assert precision.chosen("auto", byte_bundle, CPU, threads=1) == "float32"
        assert len(timed) == 2 * tries * (precision.ROUNDS + 1)


def test_what_is_named_is_not_measured_nor_is_a_gpu(
    byte_bundle: Bundle, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = times(monkeypatch, 10.0, 5.0)
    assert precision.chosen("bfloat16", byte_bundle, CPU, threads=1) == "bfloat16"
    assert precision.chosen("float32", byte_bundle, CPU, threads=1) == "float32"
    assert precision.chosen("auto", byte_bundle, torch.device("cuda"), threads=1) == "bfloat16"
    assert not timed
    assert not cache.exists()


def test_forwards_are_really_timed_and_threads_are_left_as_they_were(byte_bundle: Bundle) -> None:
    before = torch.get_num_threads()
    measured = precision.measure(byte_bundle.part("target"), threads=before + 1)
    assert torch.get_num_threads() == before
    assert measured["dtype"] in ("bfloat16", "float32")
    figures = measured["milliseconds"]
    assert isinstance(figures, dict)
    for taken in figures.values():
        assert len(taken) == len(precision.ROWS) + 1
        assert min(taken) > 0.0


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("sooner", [torch.bfloat16, torch.float32])
def test_an_engine_computes_in_what_was_chosen(
    load_engine: Callable[..., TorchEngine],
    byte_bundle: Bundle,
    monkeypatch: pytest.MonkeyPatch,
    sooner: torch.dtype,
) -> None:
    narrow = sooner == torch.bfloat16
    times(monkeypatch, bfloat16=5.0 if narrow else 10.0, float32=10.0 if narrow else 5.0)
    engine = load_engine(["naive"], byte_bundle, dtype="auto")
    assert engine._target.model.dtype == sooner
