"""Which method answered a conversation's last turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.request.conversation import Conversations

USER, OTHER = {"role": "user", "content": "hi"}, {"role": "user", "content": "and now?"}


def assistant(text):
    return {"role": "assistant", "content": text}


def test_the_next_turn_finds_who_answered_the_last():
    known = Conversations()
    assert known.method("", [USER]) is None
    known.remember("", [USER], " hello\n", "ngram")
    assert known.method("", [USER, assistant("hello"), OTHER]) == "ngram", "clients may trim"
    assert known.method("", [USER, assistant("something else"), OTHER]) is None
    known.remember("", [USER, assistant("hello"), OTHER], "fine", "naive")
    assert known.method("", [USER, assistant("hello"), OTHER, assistant("fine"), USER]) == "naive"


def test_each_scope_finds_its_own_conversations():
    known = Conversations()
    known.remember("tenant acme", [USER], "hello", "ngram")
    said = [USER, assistant("hello"), OTHER]
    assert known.method("tenant acme", said) == "ngram"
    assert known.method("tenant initech", said) is None
    assert known.method("", said) is None


@settings(deadline=None)
@given(st.lists(st.text(max_size=3), max_size=30), st.integers(1, 5))
def test_memory_is_bounded_and_keeps_the_latest(texts, capacity):
    known = Conversations(capacity)
    for text in texts:
        known.remember("", [USER], text, f"method {text}")
    assert len(known) <= capacity
    if texts:
        latest = [USER, assistant(texts[-1]), OTHER]
        assert known.method("", latest).strip() == f"method {texts[-1]}".strip()
