"""Which method answered a conversation's last turn, and so has its prefix cached."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Self


class Conversation(NamedTuple):
    """Identify a conversation by hashes of its beginnings, which clients repeat with every turn.

    origin: of the messages up to the user's first, which all turns share. asked: of those that are
    to be answered. before: of those that the last response has answered; None without one.
    """

    origin: str
    asked: str
    before: str | None

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Self:
        """Return the conversation of these messages; a begun response at their end is not asked."""
        hashed = sha256()
        hashes = [hashed.hexdigest()]
        for message in messages:
            hashed.update(json.dumps(message).encode())
            hashes.append(hashed.hexdigest())
        roles = [message["role"] for message in messages]
        said = "".join("a" if role == "assistant" else "o" for role in roles)
        asked = len(said.rstrip("a"))
        answered = len(said[:asked].rstrip("o"))
        before = len(said[:answered].rstrip("a"))
        first = roles.index("user") + 1 if "user" in roles else 1
        return cls(hashes[first], hashes[asked], hashes[before] if answered else None)


class Conversations:
    """Remember which method answered each conversation, up to `capacity` of them. Each scope has
    its own."""

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._methods: OrderedDict[tuple[str, str], str] = OrderedDict()

    def method(self, scope: str, conversation: Conversation | None) -> str | None:
        """Return the method of a conversation's last response, None if it is unknown."""
        key = scope, "" if conversation is None else conversation.before or ""
        if key in self._methods:
            self._methods.move_to_end(key)
        return self._methods.get(key)

    def remember(self, scope: str, conversation: Conversation, method: str) -> None:
        """Record that `method` has answered."""
        key = scope, conversation.asked
        self._methods[key] = method
        self._methods.move_to_end(key)
        if len(self._methods) > self._capacity:
            self._methods.popitem(last=False)
