"""The training loop on a tiny model: it learns, it resumes where it stopped, it ends in time."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from workers.training.draft import agreement, train_draft
from workers.training.model import Geometry, Llama
from workers.training.muon import orthogonalise
from workers.training.target import held_loss, train_target
from workers.training.tokens import TokenRows, batches
from workers.training.trainer import Budget, Hyper

GEOMETRY = Geometry(hidden=32, layers=2, heads=2, kv_heads=1, ffn=64, vocab=64, context=2048)
HYPER = Hyper(tokens_per_batch=512, batches_per_step=1, compile=False)


def make_rows(count: int, seed: int = 0, longest: int = 60) -> TokenRows:
    """Counting sequences: the next token is the last one plus a step named by the first token."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        step, start = int(rng.integers(1, 4)), int(rng.integers(8, 60))
        length = int(rng.integers(8, longest))
        rows.append([1, 3 + step, *((start + step * i) % 56 + 8 for i in range(length))])
    lengths = [len(r) for r in rows]
    weight = np.concatenate([[0.25, 0.25] + [1.0] * (n - 2) for n in lengths])
    return TokenRows(
        np.concatenate(rows).astype(np.uint16),
        weight.astype(np.float32),
        np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        np.ones(count, dtype=np.float32),
        np.zeros(count, dtype=np.int16),
        ("counting",),
    )


def test_saved_weights_give_transformers_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    Llama(GEOMETRY).save(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 64, (2, 300))
    with torch.no_grad():
        torch.testing.assert_close(
            Llama.load(tmp_path)(ids), theirs(ids).logits, atol=1e-4, rtol=1e-4
        )


def test_every_row_is_packed_whole_and_none_predicts_its_neighbour() -> None:
    rows = make_rows(200, longest=700)
    stream = batches(rows, 4096, seed=0)
    seen: list[tuple[int, ...]] = []
    while len(seen) < len(rows):
        batch = next(stream)
        assert batch.inputs.size == 4096
        assert np.array_equal(batch.inputs[:, 1:], batch.labels[:, :-1])
        full = np.concatenate((batch.inputs, batch.labels[:, -1:]), axis=1)
        weight = np.concatenate((np.zeros((len(full), 1)), batch.weight), axis=1)
        for ids, w in zip(full, weight, strict=True):
            starts = np.flatnonzero(ids == 1)
            assert not w[starts].any()
            assert not w[ids == 0].any()
            pieces = np.split(ids, starts)[1:]
            seen += [tuple(int(t) for t in p if t != 0) for p in pieces]
    assert sorted(seen) == sorted(tuple(map(int, rows.row(i)[0])) for i in range(len(rows)))


def test_repeats_say_how_often_a_row_comes() -> None:
    rows = make_rows(50)
    rows = TokenRows(**{**vars(rows), "repeats": np.full(50, 3.0, dtype=np.float32)})
    stream = batches(rows, 512, seed=0)
    seen = Counter[tuple[int, ...]]()
    while sum(seen.values()) < 150:
        for ids in next(stream).inputs:
            pieces = np.split(ids, np.flatnonzero(ids == 1))[1:]
            seen.update(tuple(int(t) for t in p if t != 0) for p in pieces)
    once = Counter(tuple(map(int, rows.row(i)[0])) for i in range(50))
    assert seen == Counter({row: 3 * count for row, count in once.items()})


def test_training_learns_logs_and_ends_at_rate_zero(tmp_path: Path) -> None:
    train, held = make_rows(400), make_rows(40, seed=1)
    torch.manual_seed(0)
    before = held_loss(Llama(GEOMETRY), held)["mean"]
    budget = Budget(tokens=60_000, warmup_tokens=2_000)
    after = train_target(
        GEOMETRY, train, held, tmp_path / "work", tmp_path / "out", budget, HYPER, report=_quiet
    )
    assert after["mean"] < 0.5 * before
    log = [json.loads(line) for line in (tmp_path / "work/log.jsonl").read_text().splitlines()]
    assert log[-1]["lr_factor"] == 0.0
    assert {"step", "tokens", "minutes", "minutes_left"} <= log[0].keys()
    assert (tmp_path / "work/stable.pt").exists()


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    train, held = make_rows(400), make_rows(10, seed=1)
    messages: list[str] = []
    for tokens in (5_000, 12_000):
        train_target(
            GEOMETRY,
            train,
            held,
            tmp_path / "work",
            tmp_path / "out",
            Budget(tokens=tokens, warmup_tokens=1_000),
            HYPER,
            report=messages.append,
        )
    assert any(m.startswith("resumed at step") for m in messages)
    log = [json.loads(line) for line in (tmp_path / "work/log.jsonl").read_text().splitlines()]
    tokens_seen = [row["tokens"] for row in log]
    assert tokens_seen == sorted(tokens_seen)
    assert tokens_seen[-1] >= 12_000


def test_a_run_stopped_by_the_clock_still_decays(tmp_path: Path) -> None:
    budget = Budget(tokens=10**9, minutes=0.03, warmup_tokens=1)
    train_target(
        GEOMETRY,
        make_rows(50),
        make_rows(5),
        tmp_path / "work",
        tmp_path / "out",
        budget,
        HYPER,
        report=_quiet,
    )
    last = json.loads((tmp_path / "work/log.jsonl").read_text().splitlines()[-1])
    assert last["lr_factor"] == 0.0


def test_distillation_brings_the_draft_to_the_target(tmp_path: Path) -> None:
    train, held = make_rows(400), make_rows(40, seed=1)
    train_target(
        GEOMETRY,
        train,
        held,
        tmp_path / "target-work",
        tmp_path / "target",
        Budget(tokens=60_000, warmup_tokens=2_000),
        HYPER,
        report=_quiet,
    )
    small = Geometry(hidden=16, layers=1, heads=1, kv_heads=1, ffn=32, vocab=64)
    torch.manual_seed(0)
    untrained = agreement(Llama(small), Llama.load(tmp_path / "target"), held)["mean"]
    after = train_draft(
        small,
        train,
        held,
        tmp_path / "draft-work",
        tmp_path / "draft",
        Budget(tokens=60_000, warmup_tokens=2_000),
        HYPER,
        report=_quiet,
        target=tmp_path / "target",
    )
    assert after["mean"] > untrained + 0.3


@pytest.mark.parametrize("shape", [(3, 16, 40), (2, 40, 16)])
def test_orthogonalised_updates_have_singular_values_near_one(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)).float())
    assert values.min() > 0.5
    assert values.max() < 1.3


def _quiet(_: str) -> None:
    pass
