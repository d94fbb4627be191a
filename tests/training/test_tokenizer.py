"""The committed tokenizer, its chat layout, and the training of one."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.training.rows import single_turn
from training.corpus import CorpusError
from training.corpus.rows import write_rows
from training.tokenizer import SPECIAL_TOKENS, train_tokenizer
from workers.chat_template import ChatFormatError, encode_chat, encode_text

DEMO = Path(__file__).parents[2] / "bundles" / "demo" / "tokenizer"
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Write a function.\n    x = 1\n"},
    {"role": "assistant", "content": "def f(x):\n        return x + 12.50"},
    {"role": "user", "content": "Übersetze: ¿dónde está? 日本"},
]


@pytest.fixture(scope="module")
def tokenizer():
    return demo_tokenizer()


@cache
def demo_tokenizer():
    return AutoTokenizer.from_pretrained(DEMO)


def test_size_and_special_ids(tokenizer):
    assert len(tokenizer) == 4096
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(8))
    special = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert special == (0, 1, 2)
    assert sum(file.stat().st_size for file in DEMO.iterdir()) < 500_000


def test_plain_encoding_adds_nothing(tokenizer):
    assert tokenizer.encode("Hello") == tokenizer.encode("Hello", add_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode("Hello")) == "Hello"


@settings(deadline=None)
@given(text=st.text())
def test_any_text_survives(text):
    tokenizer = demo_tokenizer()
    ids = encode_text(tokenizer, text)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert not set(ids) & set(range(8))


def test_digits_stay_single(tokenizer):
    tokens = [tokenizer.decode([one]) for one in encode_text(tokenizer, "in 2024, 365.25 days")]
    assert [token for token in tokens if any(c.isdigit() for c in token)] == list("202436525")


@pytest.mark.parametrize("prompted", [False, True])
def test_our_encoding_is_the_chat_template(tokenizer, prompted):
    theirs = tokenizer.apply_chat_template(
        CHAT, add_generation_prompt=prompted, tokenize=True, return_dict=True
    )["input_ids"]
    assert encode_chat(tokenizer, CHAT, prompted) == theirs


@settings(deadline=None)
@given(name=st.sampled_from(SPECIAL_TOKENS), before=st.text(max_size=5), after=st.text(max_size=5))
def test_content_never_becomes_a_special_token(name, before, after):
    tokenizer = demo_tokenizer()
    content = f"{before}{name}{after}"
    bos, role, *ids, end, prompt = encode_chat(
        tokenizer, [{"role": "user", "content": content}], True
    )
    assert (bos, role, end, prompt) == (1, 4, 2, 5)
    assert not set(ids) & set(range(8))
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == content


def test_an_unknown_role_is_named(tokenizer):
    with pytest.raises(ChatFormatError, match=r"messages\[0\].role is 'tool'"):
        encode_chat(tokenizer, [{"role": "tool", "content": "x"}], True)


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
    assert len(AutoTokenizer.from_pretrained(tmp_path / "a")) == 280


def test_a_corpus_too_small_is_named(small_corpus, tmp_path):
    with pytest.raises(CorpusError, match="vocab_size=4096"):
        train_tokenizer(small_corpus, tmp_path / "out")
