"""The sequences that a simulated replica decodes together."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from ops.simulate.workload import Request


class Batch:
    """Running requests, which leave at the end of their paths.

    counts: by method. context: their tokens in the KV cache, rate: the tokens that a step adds on
    the mean, width: the rows that it verifies; all three summed. steps: taken so far.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """names: of all methods, in the order of their indices."""
        self._names = names
        self._ends: list[tuple[int, int, Request]] = []
        self._by_method = [0] * len(names)
        """Sequences in each step, summed over steps."""
        self.counts = [0] * len(names)
        self.context = self.rate = self.width = 0.0
        self.steps = 0

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def requests(self) -> list[Request]:
        """Return the running requests."""
        return [request for _, _, request in self._ends]

    @property
    def left(self) -> int:
        """Return the steps until the next request ends."""
        return self._ends[0][0] - self.steps

    def join(self, request: Request) -> None:
        """Begin the decode steps of a request that has its first token."""
        request.begun = self.steps
        heappush(self._ends, (self.steps + request.path.steps, request.number, request))
        self.counts[request.method] += 1
        request.batch_steps = dict(zip(self._names, self._by_method, strict=True))
        self.context += request.prompt + 1
        self.rate += request.path.rate
        self.width += request.path.width

    def cut(self, request: Request, steps: int) -> None:
        """End a request after so many steps, if its answer is not complete by then."""
        end = self.steps + steps
        request.cut = end < request.begun + request.path.steps
        if request.cut:
            self._ends = [(end if r is request else e, n, r) for e, n, r in self._ends]
            heapify(self._ends)

    def out(self, request: Request, steps: int = 0) -> float:
        """Return a request's tokens after so many steps, on the mean way to its end."""
        return 1.0 + (self.steps + steps - request.begun) * request.path.rate

    def decode(self, steps: int) -> list[Request]:
        """Take steps and return the requests that end with them."""
        self.steps += steps
        for method, count in enumerate(self.counts):
            self._by_method[method] += steps * count
        self.context += self.rate * steps
        ended = []
        while self._ends and self.left <= 0:
            _, _, request = heappop(self._ends)
            self._leave(request)
            ended.append(request)
        if not self._ends:
            self.context = self.rate = self.width = 0.0
        return ended

    def _leave(self, request: Request) -> None:
        path, before = request.path, request.batch_steps.items()
        request.batch_steps = {
            name: now - then
            for (name, then), now in zip(before, self._by_method, strict=True)
            if now > then
        }
        self.counts[request.method] -= 1
        self.context -= request.prompt + self.out(request)
        self.rate -= path.rate
        self.width -= path.width
        if request.cut:
            request.path = path.until(self.steps - int(request.begun))
