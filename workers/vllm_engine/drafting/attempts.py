"""Calls of drafters that may fail; their rows then decode without drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from workers.drafting.failures import Failures

if TYPE_CHECKING:
    from workers.vllm_engine.drafting.step import Step

Said = TypeVar("Said")


class Following(Protocol):
    """A drafter with KV of its own."""

    def lose(self, requests: Iterable[str]) -> None:
        """Stop drafting for requests whose tokens its KV lacks."""
        ...


class Attempts:
    """Call drafters, and log and count their failures.

    A drafter that fails several times in a row is disabled for a while. One with KV of its own
    drafts no more for the step's requests, since their states are lost.

    followers: the drafters with KV of their own, by name.
    """

    def __init__(self, followers: Mapping[str, Following]) -> None:
        self.failures = Failures()
        self._followers = followers

    def draft(
        self,
        name: str,
        step: Step,
        rows: Sequence[int],
        propose: Callable[[], dict[int, list[int]]],
    ) -> dict[int, list[int]]:
        """Return a drafter's drafts by row; none where it fails or is disabled."""
        if rows and self.failures.rests(name):
            return {}

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
        """Return the result of a drafter's call; None where it fails."""
        try:
            return call()
        except Exception as error:
            self.failures.failed(name, error)
            if name in self._followers:
                self._followers[name].lose([step.request(row) for row in rows])
            return None
