"""Which method answered a conversation's last turn."""

import pytest

from deployments.request.prompt import Conversation, Conversations

USER, OTHER = {"role": "user", "content": "hi"}, {"role": "user", "content": "and now?"}
SYSTEM = {"role": "system", "content": "Be brief."}
SAID = {"role": "assistant", "content": "hello"}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "18 degrees"}


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ([USER], [USER, SAID, OTHER]),
        ([SYSTEM, USER], [SYSTEM, USER, CALL, SAID, OTHER]),
        ([USER], [USER, CALL, RESULT]),
        ([USER, CALL, RESULT], [USER, CALL, RESULT, SAID, OTHER]),
        ([USER, SAID], [USER, SAID | {"content": "hello, begun and ended"}, OTHER]),
    ],
)
def test_the_next_turn_finds_who_answered_the_last(first, later):
    known = Conversations()
    assert known.method("", Conversation.of(first)) is None
    known.remember("", Conversation.of(first), "ngram")
    assert known.method("", Conversation.of(later)) == "ngram"
    assert known.method("tenant initech", Conversation.of(later)) is None
    assert known.method("", Conversation.of([OTHER, *later])) is None
    assert Conversation.of(first).origin == Conversation.of(later).origin


def test_memory_is_bounded_and_keeps_the_latest():
    known = Conversations(2)
    turns = [[{"role": "user", "content": str(number)}, SAID, OTHER] for number in range(3)]
    for turn in turns:
        known.remember("", Conversation.of(turn[:1]), "ngram")
        known.method("", Conversation.of(turns[0]))
    assert [known.method("", Conversation.of(turn)) for turn in turns] == ["ngram", None, "ngram"]
    assert known.method("", None) is None
