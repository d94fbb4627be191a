"""A prompt on its way to a response, and which method answered its conversation's last turn."""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple, Self

from router.constraints import Slo
from schemas import SamplingParams
from schemas.decode import derived_seed
from workers.reasoning import Reasoning


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


def unmetered(_tokens: int) -> None:
    """Charge nothing."""


@dataclass(frozen=True)
class Prompt:
    """Hold a request that is ready to be routed.

    whole: the response is wanted in one piece. choices: number of responses. deadline_seconds: for
    all of them; None for no deadline. echoed: text that begins each response. silent: the prompt is
    only read, and the token that the engine emits is dropped. spend: called with the number of
    output tokens as they arrive. found: called with the prompt tokens found in a prefix cache.
    teaches: whether its vector may be kept. owner: as in Sample; None: drafters must not be trained
    on it. open_ended: whether `sampling.max_tokens` is only what the context has left. slo: how
    fast the response has to be. reasoning: where the response's reasoning is; None: it has none.
    adapter, scope, kept, expected_tokens, max_draft_tokens, predicted_token_ids: as in
    DecodeRequest.
    """

    token_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    conversation: Conversation | None = None
    pinned: str | None = None
    adapter: str | None = None
    whole: bool = False
    choices: int = 1
    deadline_seconds: float | None = None
    echoed: str = ""
    silent: bool = False
    spend: Callable[[int], None] = unmetered
    found: Callable[[int], None] = unmetered
    scope: str = ""
    teaches: bool = True
    owner: str | None = None
    kept: bool = True
    open_ended: bool = False
    expected_tokens: int | None = None
    max_draft_tokens: int | None = None
    slo: Slo = field(default_factory=Slo)
    predicted_token_ids: tuple[int, ...] = ()
    reasoning: Reasoning | None = None

    @property
    def drafted_as_usual(self) -> bool:
        """Return whether methods draft for this prompt as they do for others.

        With a predicted response they accept more, with a bound on drafts less. Such a response
        says nothing about other prompts.
        """
        return self.max_draft_tokens is None and not self.predicted_token_ids

    def further(self, index: int) -> Self:
        """Return the prompt of the response with this index. Answer 0 keeps the seed; the others
        derive theirs."""
        if index == 0:
            return self
        seed = derived_seed(self.sampling.seed, str(index))
        sampling = self.sampling.model_copy(update={"seed": seed})
        return replace(self, sampling=sampling, found=unmetered)
