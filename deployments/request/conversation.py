"""Which method answered a conversation's last turn, and so has its prefix cached."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence


class Conversations:
    """Remember which method answered each conversation, up to `capacity` of them.

    A client repeats the whole conversation with every turn, so a hash over the messages up to the
    last answer identifies it without a session id. Each scope has its own conversations.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._methods: OrderedDict[str, str] = OrderedDict()

    def method(self, scope: str, messages: Sequence[Mapping[str, str]]) -> str | None:
        """Return the method of the last answer in `messages`, None if it is unknown."""
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


def _key(scope: str, messages: Sequence[Mapping[str, str]]) -> str:
    said = [(m["role"], m["content"].strip()) for m in messages]
    return hashlib.sha256(json.dumps([scope, said]).encode()).hexdigest()
