"""Which drafter wrote the drafts of each request, for the statistics of its answer."""

from collections import OrderedDict

REMEMBERED = 4096
"""Requests at most: of one that was given up nobody asks."""


class Authors:
    """By request whose draft each decode step has verified, in their order; of one without a draft
    NOBODY's."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[str]] = OrderedDict()

    def begin(self, request: str) -> None:
        """It is answered from here on, whatever became of an earlier attempt."""
        self._of[request] = []
        self._of.move_to_end(request)
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def wrote(self, request: str, drafter: str) -> None:
        """The target has just checked this drafter's draft for the request."""
        if request in self._of:
            self._of[request].append(drafter)

    def take(self, request: str) -> list[str]:
        """Those of a request that has ended; they are forgotten."""
        return self._of.pop(request, [])
