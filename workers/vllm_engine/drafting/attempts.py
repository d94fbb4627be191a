"""Calls of drafters that may fail, on all processes of tensor parallelism alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch
import torch.distributed
from vllm.distributed.parallel_state import get_tp_group

from workers.drafting.failures import Failures

if TYPE_CHECKING:
    from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter
    from workers.vllm_engine.drafting.step import Step

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
        self, followers: Mapping[str, AutoregressiveDrafter], learned: Collection[str]
    ) -> None:
        self.failures = Failures()
        self._followers, self._learned = followers, frozenset(learned)

    def draft(
        self,
        name: str,
        step: Step,
        rows: Sequence[int],
        propose: Callable[[], dict[int, list[int]]],
    ) -> dict[int, list[int]]:
        """Return a drafter's drafts by row; none where it fails."""

        def checked() -> dict[int, list[int]]:
            drafts = propose()
            for row, tokens in drafts.items():
                if row not in rows or any(type(t) is not int or t < 0 for t in tokens):
                    raise ValueError(f"{tokens} is not a draft of row {row}")
            return drafts

        drafts = self.call(name, step, rows, checked)
        if drafts is None:
            return {}
        if rows:
            self.failures.drafted(name)
        return drafts

    def call(
        self, name: str, step: Step, rows: Sequence[int], call: Callable[[], Said]
    ) -> Said | None:
        """Return the result of a drafter's call; None where it fails. Raises RuntimeError, which
        ends the engine, where processes cannot agree on it."""
        said, error = None, None
        try:
            said = call()
        except Exception as raised:
            error = raised
        if rows and name in self._learned:
            error = _agreed(error)
        if error is None:
            return said
        self.failures.failed(name, error)
        if name in self._followers:
            self._followers[name].lose([step.request(row) for row in rows])
        return None


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
