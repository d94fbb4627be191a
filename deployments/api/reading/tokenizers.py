"""A bundle's tokenizer for the event loop, and its copies for the threads that read long texts."""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from deployments.api.reading.fair_threads import FairThreads
from deployments.artifacts import read_template
from deployments.guard.caller import Caller
from schemas.http import HttpConfig
from workers.bundle import Bundle
from workers.chat_template import encode_text

# Shorter texts take less than half a millisecond, less than going to a thread and back may.
_SHORT_BYTES = 2048
_THREADS = 2

Result = TypeVar("Result")


class Tokenizers:
    """Read texts, long ones away from the event loop and in turn by caller."""

    def __init__(self, bundle: Bundle, http: HttpConfig) -> None:
        self.own = bundle.tokenizer()
        """For the event loop."""
        # A fast tokenizer raises "Already borrowed" when two threads change its settings.
        copies = [bundle.tokenizer() for _ in range(_THREADS)]
        self._copies = SimpleQueue[Any]()
        for tokenizer in copies:
            self._copies.put(tokenizer)
        for tokenizer in (self.own, *copies):
            if http.chat_template is not None:
                tokenizer.chat_template = read_template(http.chat_template)
            encode_text(tokenizer, "")  # what is made once of each is not made for a request
        self._threads = FairThreads(_THREADS, "tokenise")

    async def read(self, caller: Caller, size: int, call: Callable[[Any], Result]) -> Result:
        """Return what `call` makes of a text of `size` bytes, given a tokenizer."""
        if size <= _SHORT_BYTES:
            return call(self.own)
        return await self.in_turn(caller, size, partial(self._with_copy, call))

    async def in_turn(self, caller: Caller, size: int, call: Callable[[], Result]) -> Result:
        """Return the result of a call that reads `size` bytes in a thread. The caller is charged
        for the time."""
        return await self._threads.run(caller.owner, size, call, caller.worked)

    def _with_copy(self, call: Callable[[Any], Result]) -> Result:
        tokenizer = self._copies.get()
        try:
            return call(tokenizer)
        finally:
            self._copies.put(tokenizer)
