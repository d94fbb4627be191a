"""Training heads on a language that a tiny target knows: what they draft, resuming, the cache."""

from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from schemas.json_files import json_lines
from tests.training.counting import Counting, answers_only, make_rows, make_run
from training.heads.eagle import Eagle
from training.heads.eagle3 import Eagle3
from training.heads.features import FeatureCache
from training.heads.head import Head
from training.heads.medusa import Medusa
from training.heads.packing import PackedRows
from training.heads.teacher import Teacher
from training.heads.train import Plan, train_head
from training.tokens import TokenRows


@pytest.fixture(scope="module")
def teacher(counting: Counting) -> Teacher:
    return Teacher.of(deepcopy(counting.model))


@pytest.mark.parametrize(
    "kind", [pytest.param("eagle", marks=pytest.mark.slow), "eagle3", "medusa"]
)
def test_a_trained_head_drafts_the_tokens_that_follow(
    kind: str, teacher: Teacher, tmp_path: Path
) -> None:
    head = _head(kind, teacher)
    figures = train_head(
        head, teacher, _rows(300), _held(), make_run(tmp_path, 100_000), _plan(tmp_path)
    )
    # with one hidden state and no embedding Medusa knows less of this language
    assert figures.acceptance["counting"] > (0.35 if kind == "medusa" else 0.8)
    assert figures.chain["counting"] > (0.5 if kind == "medusa" else 1.5)
    assert figures.accuracy[0][0] == pytest.approx(figures.acceptance["mean"])
    assert all(a <= b for position in figures.accuracy for a, b in pairwise(position))

    shares = [_drafted(head, teacher, ahead) for ahead in (1, 2, 3)]
    assert shares[1] > (0.2 if kind == "medusa" else 0.5)
    assert shares[1] > max(shares[0], shares[2])

    log = [row for _, row in json_lines(tmp_path / "work/log.jsonl")]
    losses = [row["loss"] for row in log if "loss" in row]
    assert losses[-1] < 0.7 * losses[0]
    *_, (_, reported) = json_lines(tmp_path / "work/accuracy.jsonl")
    assert reported["acceptance"] == figures.acceptance


def test_a_run_goes_on_where_it_stopped_with_the_states_it_has(
    teacher: Teacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    train_head(
        _head("eagle", teacher),
        teacher,
        _rows(30),
        _held(),
        make_run(tmp_path, 20_000),
        _plan(tmp_path),
    )
    computed = _count_computed(teacher, monkeypatch)
    run = make_run(tmp_path, 30_000, report=messages.append)
    train_head(_head("eagle", teacher), teacher, _rows(30), _held(), run, _plan(tmp_path))
    assert any(m.startswith("resumed at step") for m in messages)
    assert len(computed) == -(-len(PackedRows(_held(), 64, 2)) // 8)  # the held rows alone


def test_states_are_computed_once_and_those_beyond_the_bound_every_time(
    teacher: Teacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = PackedRows(_rows(40), 64, 2)
    bytes_per_bin = 64 * 2 * 32 * 2
    computed = _count_computed(teacher, monkeypatch)
    half = len(packed) // 2
    cache = FeatureCache(teacher, (1,), packed, tmp_path, (half + 0.5) * bytes_per_bin / 1e9)
    rng = np.random.default_rng(0)
    first = packed.batch(np.arange(half), rng)
    last = packed.batch(np.arange(half, len(packed)), rng)
    ids, documents = torch.from_numpy(first.inputs), torch.from_numpy(first.documents)
    expected = Teacher.states(teacher, ids, documents, (1,))
    for _ in range(2):
        torch.testing.assert_close(cache.of(first), expected, atol=0, rtol=0, check_dtype=False)
        assert cache.of(last).shape == (len(packed) - half, 64, 2, 32)
    assert len(computed) == 1 + 2
    again = FeatureCache(teacher, (1,), packed, tmp_path, (half + 0.5) * bytes_per_bin / 1e9)
    torch.testing.assert_close(again.of(first), expected, atol=0, rtol=0, check_dtype=False)
    assert len(computed) == 3
    assert sum(f.stat().st_size for f in tmp_path.glob("*.bin")) <= (half + 1) * bytes_per_bin

    # A head that reads some of these states takes them, and what it computes others find.
    fewer = FeatureCache(teacher, (), packed, tmp_path, 1)
    torch.testing.assert_close(
        fewer.of(first), expected[:, :, 1:], atol=0, rtol=0, check_dtype=False
    )
    assert fewer.of(last).shape == (len(packed) - half, 64, 1, 32)
    assert len(computed) == 4
    more = FeatureCache(teacher, (0, 1), packed, tmp_path / "more", 1)
    more.of(last)
    found = FeatureCache(teacher, (1,), packed, tmp_path / "more", 1).of(last)
    assert len(computed) == 5
    torch.testing.assert_close(found, cache.of(last), atol=0, rtol=0, check_dtype=False)
    assert len(computed) == 6

    other = PackedRows(_rows(40, seed=9), 64, 2)
    FeatureCache(teacher, (1,), other, tmp_path, 1).of(other.batch(np.arange(2), rng))
    assert len(computed) == 7


def _drafted(head: Head, teacher: Teacher, ahead: int) -> float:
    """Share of held slots whose first drafted token is the text's, so many places ahead."""
    packed = PackedRows(_held(), 64, 2)
    batch = packed.batch(np.arange(len(packed)))
    ids, labels, documents = map(torch.from_numpy, (batch.inputs, batch.labels, batch.documents))
    states = teacher.states(ids, documents, head.captures).float()
    slots = torch.from_numpy(batch.slots[batch.weights[:, 1] > 0])
    with torch.autocast("cpu", torch.bfloat16):
        output = head.drafts(labels, states, documents, 1)[0].flatten(0, 1)[slots]
        drafted = head.logits(output).argmax(-1)
    if head.vocabulary is not None:
        drafted = head.vocabulary[drafted]
    return float((drafted == ids.flatten()[slots + ahead]).float().mean())


def _count_computed(teacher: Teacher, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with the batch size of every call of the target's states."""
    computed: list[int] = []

    def states(ids: Any, *rest: Any) -> Any:
        computed.append(len(ids))
        return Teacher.states(teacher, ids, *rest)

    monkeypatch.setattr(teacher, "states", states)
    return computed


def _plan(folder: Path) -> Plan:
    return Plan(positions=2, features=folder / "features", length=64, cache_gb=0.1)


def _head(kind: str, teacher: Teacher) -> Head:
    torch.manual_seed(0)
    words = torch.arange(6, 64)
    if kind == "eagle":
        return Eagle(teacher)
    return Eagle3(teacher, words) if kind == "eagle3" else Medusa(teacher, words, 2)


def _rows(count: int, seed: int = 0) -> TokenRows:
    return answers_only(make_rows(count, seed=seed))


def _held() -> TokenRows:
    return answers_only(make_rows(20, seed=1))
