"""Training heads on a language that a tiny target knows: what they draft, resuming, the cache."""

from copy import deepcopy
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.counting import make_texts
from training import trainer
from training.heads import Head, new_head
from training.judge import tokens_per_step
from training.packing import PackedTexts
from training.teacher import Teacher
from training.trainer import Run, StateCache, train_head


@pytest.fixture(scope="module")
def teacher(counting: Any) -> Teacher:
    return Teacher(deepcopy(counting))


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [pytest.param("eagle", 2.2, marks=pytest.mark.slow), ("eagle3", 2.2), ("medusa", 1.15)],
)
def test_a_trained_head_drafts_the_tokens_that_follow(kind, wanted, teacher, tmp_path):
    """With one hidden state and no embedding Medusa knows less of this language."""
    head, told = _head(kind, teacher), list[str]()
    train_head(head, teacher, make_texts(300), _run(tmp_path, 60_000, report=told.append))
    assert tokens_per_step(teacher, head, make_texts(20, seed=1))["counting"] > wanted
    losses = [float(line.split("loss=")[1].split()[0]) for line in told if "loss=" in line]
    assert losses[-1] < 0.8 * losses[0]


def test_a_run_goes_on_where_it_stopped(teacher: Teacher, tmp_path: Path) -> None:
    told: list[str] = []
    train_head(_head("eagle", teacher), teacher, make_texts(30), _run(tmp_path, 5_000))
    run = _run(tmp_path, 8_000, report=told.append)
    train_head(_head("eagle", teacher), teacher, make_texts(30), run)
    assert any(line.startswith("resumed at step") for line in told)
    with pytest.raises(ValueError, match=r"last\.pt: .* another shape"):
        train_head(_head("medusa", teacher), teacher, make_texts(30), run)


def test_a_run_stopped_by_the_clock_ends_at_rate_zero(teacher, tmp_path, monkeypatch):
    """Every look at the clock is a second after the one before."""
    seconds, rates = count(), list[float]()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(trainer, "time", clock)
    step = torch.optim.Muon.step

    def noted(muon: Any, *given: Any) -> Any:
        rates.append(muon.param_groups[0]["lr"])
        return step(muon, *given)

    monkeypatch.setattr(torch.optim.Muon, "step", noted)
    run = _run(tmp_path, 10**9, minutes=1.0)
    train_head(_head("medusa", teacher), teacher, make_texts(30), run)
    assert max(rates) == pytest.approx(run.learning_rate)
    assert rates[-1] < 0.2 * run.learning_rate


def test_states_are_computed_once_and_those_beyond_the_bound_every_time(teacher, monkeypatch):
    packed = PackedTexts(make_texts(40), 64, 2)
    half, bytes_per_bin = len(packed) // 2, 64 * 2 * 32 * 2
    first = packed.batch(np.arange(half))
    last = packed.batch(np.arange(half, len(packed)))
    ids, documents = torch.from_numpy(first.inputs), torch.from_numpy(first.documents)
    expected = teacher.states(ids, documents, (1,))
    computed, compute = [], teacher.states
    monkeypatch.setattr(teacher, "states", lambda *of: computed.append(of) or compute(*of))
    kept = StateCache(teacher, (1,), (half + 0.5) * bytes_per_bin / 1e9)
    for _ in range(2):
        torch.testing.assert_close(kept.of(first), expected, atol=0, rtol=0, check_dtype=False)
        assert kept.of(last).shape == (len(packed) - half, 64, 2, 32)
    assert len(computed) == 1 + 2


def _run(folder: Path, tokens: int, **given: Any) -> Run:
    fields: dict[str, Any] = {"learning_rate": 6e-3, "batch_tokens": 512, "length": 64}
    fields |= {"report": lambda _: None} | given
    return Run(folder / "work", folder / "out", tokens, positions=2, **fields)


def _head(kind: str, teacher: Teacher) -> Head:
    torch.manual_seed(0)
    return new_head(kind, teacher, None if kind == "eagle" else torch.arange(6, 64), 2)
