"""Calls of drafters that may fail, on all processes of tensor parallelism alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed
from vllm.distributed.parallel_state import get_tp_group

from workers.drafting.failures import Failures

if TYPE_CHECKING:
    from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter

AGREEMENT_SECONDS = 60.0
"""How long a process waits for the others' results of the same call."""

Said = TypeVar("Said")


class Attempts:
    """Call drafters, and log and count their failures.

    A drafter that fails several times in a row is disabled for a while. One with KV of its own
    drafts no more for the step's requests, since their states are lost.

    followers: the drafters with KV of their own, by name. learned: those with a model, whose
    forwards all processes of tensor parallelism do together. Their failures are agreed upon.
    """

    def __init__(
        self, followers: MutableMapping[str, AutoregressiveDrafter], learned: Collection[str]
    ) -> None:
        self.failures = Failures()
        self._followers, self._learned = followers, frozenset(learned)

    def call(self, name: str, requests: Sequence[str], call: Callable[[], Said]) -> Said | None:
        """Return the result of a drafter's call for some requests; None where it fails. Raises
        RuntimeError, which ends the engine, where processes cannot agree on it."""
        said, error = None, None
        try:
            said = call()
        except Exception as raised:
            error = raised
        if requests and name in self._learned:
            error = _agreed(error)
        if error is None:
            return said
        self._failed(name, requests, error)
        return None

    def checked(
        self, name: str, requests: Sequence[str], drafts: Mapping[int, list[int]]
    ) -> Mapping[int, list[int]]:
        """Return a drafter's drafts by row; none if one is not of token ids. requests: of all rows.
        All processes have the same drafts."""
        for row, tokens in drafts.items():
            if any(type(token) is not int or token < 0 for token in tokens):
                error = ValueError(f"{tokens} is not a draft of row {row}")
                self._failed(name, [requests[one] for one in drafts], error)
                return {}
        if drafts:
            self.failures.drafted(name)
        return drafts

    def reserve(self, name: str, allocate: Callable[[], None]) -> None:
        """Allocate a drafter's memory. Where a process has none for it, all leave the drafter
        out."""
        error: Exception | None = None
        try:
            allocate()
        except RuntimeError as raised:  # also that of a GPU
            error = raised
        if (error := _agreed(error)) is not None:
            self.failures.unusable(name, error)
            del self._followers[name]

    def _failed(self, name: str, requests: Sequence[str], error: Exception) -> None:
        self.failures.failed(name, error)
        if name in self._followers:
            self._followers[name].lose(requests)


def _agreed(error: Exception | None) -> Exception | None:
    """Return the error of a call on this or another process of tensor parallelism; None if all
    succeeded. Raises RuntimeError if another one does not answer: it waits in a forward for this
    one's part, and only the engine's end frees it."""
    group = get_tp_group()
    if group.world_size == 1:
        return error
    failed = torch.tensor(int(error is not None), device="cpu")
    work = torch.distributed.all_reduce(failed, group=group.cpu_group, async_op=True)
    try:
        work.wait(timedelta(seconds=AGREEMENT_SECONDS))
    except RuntimeError as unanswered:
        raise RuntimeError(
            "a drafter failed in one process of tensor parallelism, and another waits for it"
        ) from error or unanswered
    if failed and error is None:
        return RuntimeError("it failed in another process of tensor parallelism")
    return error
