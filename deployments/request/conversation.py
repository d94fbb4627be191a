"""Which method answered a conversation's last turn, and so has its prefix cached."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence


class Conversations:
    """Remember which method answered each conversation, up to `capacity` of them.

    A client repeats the whole conversation with every turn, so a hash over the messages up to the
    last response identifies it without a session id. Each scope has its own conversations.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._methods: OrderedDict[str, str] = OrderedDict()

    def method(self, scope: str, messages: Sequence[Mapping[str, str]]) -> str | None:
        """Return the method of the last response in `messages`, None if it is unknown."""
        answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
        if not answers:
            return None
        key = _key(scope, messages[: answers[-1] + 1])
        if key in self._methods:
            self._methods.move_to_end(key)
        return self._methods.get(key)

    def remember(
        self, scope: str, messages: Sequence[Mapping[str, str]], answer: str, method: str
    ) -> None:
        """Record that `method` answered `messages` with `answer`."""
        key = _key(scope, [*messages, {"role": "assistant", "content": answer}])
        self._methods[key] = method
        self._methods.move_to_end(key)
        while len(self._methods) > self._capacity:
            self._methods.popitem(last=False)

    def __len__(self) -> int:
        return len(self._methods)


def origin_of(messages: Sequence[Mapping[str, str]], token_ids: Sequence[int]) -> str:
    """Return a hash of a conversation's messages up to the user's first, which all turns share.

    A prompt without messages is a conversation of its own, known by its tokens.
    """
    if not messages:
        return hashlib.sha256(json.dumps(token_ids).encode()).hexdigest()
    users = [i for i, m in enumerate(messages) if m["role"] == "user"]
    return _key("", messages[: users[0] + 1 if users else 1])


def _key(scope: str, messages: Sequence[Mapping[str, str]]) -> str:
    said = [(m["role"], m["content"].strip()) for m in messages]
    return hashlib.sha256(json.dumps([scope, said]).encode()).hexdigest()
