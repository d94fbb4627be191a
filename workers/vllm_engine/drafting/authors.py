"""The drafter of each decode step of a request, for the statistics of its answer."""

from collections import OrderedDict

REMEMBERED = 4096
"""Most requests that are remembered: one that was given up is never asked about."""


class Authors:
    """Remember whose draft each decode step of a request verified, in order; NOBODY's for a step
    without one."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[str]] = OrderedDict()

    def begin(self, request: str) -> None:
        """Begin a request, and forget an earlier attempt at it. One without an id is not asked
        about."""
        if not request:
            return
        self._of[request] = []
        self._of.move_to_end(request)
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def wrote(self, request: str, drafter: str) -> None:
        """Add a step that verified this drafter's draft."""
        if request in self._of:
            self._of[request].append(drafter)

    def take(self, request: str) -> list[str]:
        """Return and forget the drafters of a request that has ended."""
        return self._of.pop(request, [])
