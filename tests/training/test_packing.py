"""Rows packed for the training of heads."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.training.counting import answers_only, make_rows
from training.generations import generation_rows
from training.heads.packing import PackedRows, frequent_tokens
from training.tokens import TokenRows, mixed


def test_a_slots_labels_are_the_tokens_after_its_own_next_one() -> None:
    rows = answers_only(make_rows(80))
    packed = PackedRows(rows, 64, positions=5)
    texts = [rows.row(i)[0].tolist() for i in range(len(rows))]
    batch = next(packed.batches(1024))
    length, seen = 64, 0
    for slot, weight in zip(batch.slots, batch.weights, strict=True):
        row, i = divmod(int(slot), length)
        documents = batch.documents[row]
        members = packed.bins[batch.bins[row]]
        for j in np.flatnonzero(weight):
            text = texts[members[documents[i] - 1]]
            at = i - int(np.flatnonzero(documents == documents[i])[0])
            assert batch.labels[row, i + 1 + j] == text[at + 2 + j]
            seen += 1
    assert seen > 500
    assert len(batch.slots) == 512


def test_every_row_is_in_a_pass_once_and_cut_to_the_length() -> None:
    rows = make_rows(100)
    packed = PackedRows(rows, 40, positions=2)
    assert sorted(i for members in packed.bins for i in members) == list(range(100))
    for members in packed.bins:
        assert sum(min(len(rows.row(i)[0]), 40) for i in members) <= 40
    stream = packed.batches(400)
    passed = [b for _ in range(-(-len(packed) // 10)) for b in next(stream).bins]
    assert set(passed) == set(range(len(packed)))
    with pytest.raises(ValueError, match="nothing to train on"):
        PackedRows(TokenRows(*[np.zeros(0)] * 2, np.zeros(1), *[np.zeros(0)] * 2, ()), 40, 2)


def test_frequent_tokens_count_answers_alone() -> None:
    rows = answers_only(make_rows(50))
    counts = np.bincount(rows.tokens, weights=rows.weight, minlength=64)
    chosen = frequent_tokens(rows, 20, 64)
    assert sorted(chosen) == list(chosen)
    assert counts[chosen].min() >= np.delete(counts, chosen).max()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9])
def test_mixed_rows_bring_their_share_of_the_weight_in_every_pass(share: float) -> None:
    rows = answers_only(make_rows(100, domain="answers"))
    others = answers_only(make_rows(5000, seed=1, domain="corpus"))
    both = mixed(rows, others, share)
    assert both.domains == ("answers", "corpus")
    assert np.array_equal(both.row(99)[0], rows.row(99)[0])
    assert np.array_equal(both.row(5099)[0], others.row(4999)[0])
    assert both.domain[0] == 0
    assert both.domain[-1] == 1
    weight = np.add.reduceat(both.weight, both.offsets[:-1]) * both.repeats
    assert weight[100:].sum() / weight.sum() == pytest.approx(share, abs=1e-6)


def test_answers_from_a_large_vocabulary_keep_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "generations.jsonl"
    line = {"id": "a", "domain": "math", "temperature": 0.0, "prompt": [1, 128_000], "answer": [7]}
    file.write_text(json.dumps(line) + "\n")
    assert generation_rows(file).row(0)[0].tolist() == [1, 128_000, 7]
    file.write_text(json.dumps(line | {"prompt": [1, 65_535]}) + "\n")
    assert generation_rows(file).tokens.dtype == np.uint16
