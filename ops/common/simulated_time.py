"""Simulated time: an event loop that runs hours of a service in seconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


def run_simulated(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in simulated time, which starts at 0 and passes only while all wait."""
    with asyncio.Runner(loop_factory=_SimulatedTimeLoop) as runner:
        return runner.run(work)


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that adds timeouts to `now` instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("simulated time: all tasks wait and nothing is due")
        self.now += timeout
        return []


class _SimulatedTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(
        self,
        executor: Any,  # noqa: ARG002
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Do the work of threads at once: simulated time does not wait for them."""
        done: asyncio.Future[Result] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done
