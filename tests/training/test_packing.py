"""Rows packed for the training of heads."""

import numpy as np
import pytest

from tests.training.counting import make_rows
from training.heads.packing import PackedRows, frequent_tokens
from training.tokens import TokenRows, answers_only


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
