"""Answers packed for the training of heads."""

import numpy as np
import pytest

from tests.training.counting import make_texts
from training.packing import PackedTexts, Text, frequent_tokens, mixed


def test_a_slots_labels_are_the_tokens_after_its_own_next_one() -> None:
    texts = make_texts(80)
    packed = PackedTexts(texts, 64, positions=5)
    batch, seen = next(packed.batches(1024)), 0
    for slot, weight in zip(batch.slots, batch.weights, strict=True):
        row, i = divmod(int(slot), 64)
        documents = batch.documents[row]
        text = texts[packed.bins[batch.bins[row]][documents[i] - 1]]
        at = i - int(np.flatnonzero(documents == documents[i])[0])
        for j in np.flatnonzero(weight):
            assert batch.labels[row, i + 1 + j] == text.tokens[at + 2 + j]
            assert at + 2 + j >= text.prompt
            seen += 1
    assert seen > 500


def test_every_text_is_in_a_pass_once_and_cut_to_the_length() -> None:
    texts = make_texts(100)
    packed = PackedTexts(texts, 40, positions=2)
    assert sorted(i for members in packed.bins for i in members) == list(range(100))
    for members in packed.bins:
        assert sum(min(len(texts[i].tokens), 40) for i in members) <= 40
    stream = packed.batches(400)
    passed = [b for _ in range(-(-len(packed) // 10)) for b in next(stream).bins]
    assert set(passed) == set(range(len(packed)))
    with pytest.raises(ValueError, match="no answer to learn from"):
        PackedTexts([], 40, 2)


def test_a_long_text_loses_its_first_tokens() -> None:
    text = Text.of([1, 2, 3], [4, 5], longest=3)
    assert (text.tokens.tolist(), text.prompt) == ([3, 4, 5], 1)
    assert Text.of([1, 2], [3, 4, 5], longest=2).answer.tolist() == [4, 5]


def test_frequent_tokens_count_answers_alone() -> None:
    texts = make_texts(50)
    counts = np.bincount(np.concatenate([text.answer for text in texts]), minlength=64)
    chosen = frequent_tokens(texts, 64, 20)
    assert sorted(chosen) == list(chosen)
    assert counts[chosen].min() >= np.delete(counts, chosen).max()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_mixed_texts_have_their_share_of_every_pass(share: float) -> None:
    both = mixed(make_texts(100), make_texts(500, seed=1), share)
    tokens = [len(text.answer) * text.repeats for text in both]
    assert sum(tokens[100:]) / sum(tokens) == pytest.approx(share, abs=1e-6)
