"""The LoRA adapters that a vLLM engine answers with."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from vllm.exceptions import VLLMServerError
from vllm.lora.request import LoRARequest

from workers.engine import EngineRefusedError
from workers.vllm_engine.adapter_files import FIELD

Load = Callable[[LoRARequest], Awaitable[bool]]
"""Load an adapter into the engine's processes."""


class Adapters:
    """Give each adapter an id, the same on every replica, and load it when it is first asked for.

    vLLM ends the engine if a step meets an adapter that does not load.
    """

    def __init__(self, folders: Mapping[str, Path], load: Load) -> None:
        self._requests = {
            name: LoRARequest(name, number, str(folders[name]))
            for number, name in enumerate(sorted(folders), start=1)
        }
        self._load, self._loaded = load, set[str]()

    async def request(self, name: str | None) -> LoRARequest | None:
        """Return vLLM's request of a loaded adapter; None for none. Raises EngineRefusedError for
        one that is unknown or does not load."""
        if name is None:
            return None
        chosen = self._requests.get(name)
        if chosen is None:
            names = ", ".join(self._requests) or "there are none"
            raise EngineRefusedError(f"adapter: {name!r} is not served; adapters: {names}")
        if name not in self._loaded:
            try:
                await self._load(chosen)
            except VLLMServerError:
                raise
            except Exception as error:  # vLLM raises many kinds
                raise EngineRefusedError(f"{FIELD}.{name}: vLLM refuses it: {error}") from error
            self._loaded.add(name)
        return chosen
