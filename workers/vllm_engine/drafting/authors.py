"""Which drafter wrote the drafts of each request, for the statistics of its answer."""

from collections import OrderedDict

REMEMBERED = 4096
"""Requests at most: of one that was given up nobody asks."""


class Authors:
    """By request the drafter of every step that verified drafts, in their order."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[str]] = OrderedDict()

    def wrote(self, request: str, drafter: str) -> None:
        """The target has just checked a draft of this drafter for the request."""
        self._of.setdefault(request, []).append(drafter)
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def take(self, request: str) -> list[str]:
        """Those of a request that has ended; they are forgotten."""
        return self._of.pop(request, [])
