"""Training a tokenizer on a corpus."""

import pytest
from transformers import AutoTokenizer

from tests.training.rows import single_turn
from training.corpus import CorpusError
from training.corpus.rows import write_rows
from training.tokenizer import SPECIAL_TOKENS, train_tokenizer
from workers.chat_template import encode_text


@pytest.fixture
def small_corpus(tmp_path):
    rows = [
        single_turn(
            f"{number}", "math", "s", f"What is {number} plus some words?", f"It is {number}."
        )
        for number in range(200)
    ]
    write_rows(tmp_path / "train.jsonl", rows)
    return tmp_path


def test_training_reaches_the_size_and_repeats(small_corpus, tmp_path):
    for name in ("a", "b"):
        assert train_tokenizer(small_corpus, tmp_path / name, vocab_size=280) == 280
    first, second = ((tmp_path / name / "tokenizer.json").read_bytes() for name in ("a", "b"))
    assert first == second


def test_special_tokens_come_first_digits_stay_single_and_any_text_survives(small_corpus, tmp_path):
    train_tokenizer(small_corpus, tmp_path / "a", vocab_size=280)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    assert len(tokenizer) == 280
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(8))
    text = "in 2024, 365.25 days\n    Übersetze: ¿dónde está? 日本"
    ids = encode_text(tokenizer, text)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    digits = [t for t in map(tokenizer.decode, ids) if any(c.isdigit() for c in t)]
    assert digits == list("202436525")


def test_a_corpus_too_small_is_named(small_corpus, tmp_path):
    with pytest.raises(CorpusError, match="vocab_size=4096"):
        train_tokenizer(small_corpus, tmp_path / "out")
