"""The rows of the target's pool: which sequence has which, and what is kept of them."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.method import Method
from workers.torch_engine.models.kv_pool import KvPool, Lease
from workers.torch_engine.models.prefix_cache import Holding, PrefixCache
from workers.torch_engine.parts import Drafter, Remembering, Resuming
from workers.torch_engine.sequence import DecodeSequence

log = logging.getLogger(__name__)


class Rows:
    """Give sequences rows with as much of their prompts as other rows hold and their drafters
    can continue from, and take the rows back.

    remembers: whether rows are searched and kept (`engine.prefix_cache`).
    """

    def __init__(
        self,
        pool: KvPool,
        methods: Mapping[str, Method],
        drafters: Sequence[Drafter],
        guard: DrafterGuard,
        *,
        remembers: bool,
    ) -> None:
        self.prefixes = PrefixCache(pool, self._forgotten)
        self.remembering = [one for one in drafters if isinstance(one, Remembering)]
        self._pool, self._methods, self._drafters = pool, methods, drafters
        self._guard = guard
        self._remembers = remembers

    def found(self, sequence: DecodeSequence, running: Sequence[DecodeSequence]) -> int:
        """Return how many of its prompt's tokens a sequence would find in other rows."""
        if self._reads_all(sequence):
            return 0
        scope = sequence.request.scope
        return self.prefixes.finds(sequence.tokens, _holdings(running), scope)

    def take(self, sequence: DecodeSequence, running: Sequence[DecodeSequence]) -> Lease:
        """Return a row for a sequence that will run beside these. Raises RuntimeError where all
        are in use."""
        if self._reads_all(sequence):
            return self.prefixes.take_empty()
        scope = sequence.request.scope
        try:
            lease, source = self.prefixes.take(sequence.tokens, _holdings(running), scope)
        except (RuntimeError, MemoryError):
            log.warning("a prompt's kept prefix could not be used: it is read", exc_info=True)
            return self.prefixes.take_empty()
        drafter = self._methods[sequence.method].plan.drafter
        if source is not None:
            length = self._guard.begin(drafter, sequence, lease, source, lease.length)
            self._pool.cut(lease, length)
        if source is lease:
            self._forgotten(lease)
        return lease

    def give_back(self, sequence: DecodeSequence, *, spoilt: bool) -> None:
        """Take an ended sequence's row back. spoilt: the row may hold NaN."""
        lease = sequence.lease
        lease.spoilt = spoilt
        if not self._remembers or spoilt:
            self._pool.release(lease)
        elif self._keeps(sequence):
            for remembering in self.remembering:
                self._guard.tell(remembering, sequence, partial(remembering.keep, sequence))
        self._guard.release(self._drafters, sequence)
        sequence.leave()

    def _keeps(self, sequence: DecodeSequence) -> bool:
        """Keep an ended sequence's row for prompts that begin like it, or free it; return whether
        it is kept."""
        scope, prompt = sequence.request.scope, sequence.prompt_tokens
        try:
            return self.prefixes.give_back(sequence.lease, sequence.tokens, scope, prompt)
        except (RuntimeError, MemoryError):
            log.warning("an answer's row could not be kept", exc_info=True)
            self._pool.release(sequence.lease)
            return False

    def _reads_all(self, sequence: DecodeSequence) -> bool:
        """Return whether its prompt must be read whole, for its log probabilities or for a drafter
        that needs hidden states of all tokens."""
        drafter = self._methods[sequence.method].plan.drafter
        whole = drafter.captures and not isinstance(drafter, Resuming)
        return bool(whole) or sequence.wants_prompt_logprobs or not self._remembers

    def _forgotten(self, lease: Lease) -> None:
        for drafter in self.remembering:
            self._guard.drop(drafter, lease)


def _holdings(running: Sequence[DecodeSequence]) -> list[Holding]:
    return [Holding(s.lease, s.tokens, s.request.scope) for s in running]
