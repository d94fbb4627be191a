"""The outputs of each step of a vLLM engine, apart."""

import inspect
from collections import deque
from typing import Any

from vllm.outputs import PoolingRequestOutput, RequestOutput
from vllm.v1.engine import async_llm
from vllm.v1.engine.output_processor import RequestOutputCollector

NAME = "RequestOutputCollector"
REPLACED = ("put", "get", "get_nowait")


class StepCollector(RequestOutputCollector):
    """Collect each engine step apart. vLLM's collector joins unread steps, but only a step's own
    tokens tell how many of them were drafted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._steps: deque[RequestOutput | PoolingRequestOutput | Exception] = deque()

    def put(self, output: RequestOutput | PoolingRequestOutput | Exception) -> None:
        self._steps.append(output)
        self.ready.set()

    async def get(self) -> RequestOutput | PoolingRequestOutput:
        while (output := self.get_nowait()) is None:
            self.ready.clear()
            await self.ready.wait()
        return output

    def get_nowait(self) -> RequestOutput | PoolingRequestOutput | None:
        output = self._steps.popleft() if self._steps else None
        if isinstance(output, Exception):
            raise output
        return output


def collect_steps() -> None:
    """Make every AsyncLLM of this process use StepCollector; vLLM has no argument for it.

    Raises RuntimeError if this vLLM collects in another way.
    """
    add = inspect.unwrap(async_llm.AsyncLLM.add_request)
    changed = [name for name in REPLACED if not hasattr(RequestOutputCollector, name)]
    if changed or NAME not in add.__code__.co_names or not hasattr(async_llm, NAME):
        names = ", ".join(f"{NAME}.{name}" for name in changed) or f"async_llm.{NAME}"
        raise RuntimeError(
            f"this vLLM no longer collects outputs by {names}, on which statistics per step rest: "
            "install a release that docs/vllm.md names as tested"
        )
    async_llm.RequestOutputCollector = StepCollector
