"""The demo bundle and prompts of every domain, for real vLLM engines."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conftest_bundle import DEMO

from workers.bundle import Bundle, load_bundle
from workers.chat_template import encode_chat
from workers.engine import Engine
from workers.loader import load_engine
from workers.vllm_engine.environment import FIRST_RUNNER

PROMPTS = Path(__file__).parents[3] / "ops" / "data" / "prompts.jsonl"


@pytest.fixture(scope="module", autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    """Skip a module of vLLM's where it is not installed.

    No module imports vLLM while tests are collected, which every process would pay for.
    """
    if request.node.get_closest_marker("vllm"):
        pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")


@pytest.fixture(scope="session")
def bundle() -> Bundle:
    return load_bundle(DEMO)


@pytest.fixture(scope="session")
def all_prompts(bundle: Bundle) -> dict[str, list[list[int]]]:
    """The shipped prompts of every domain, in token ids."""
    tokenizer, found = bundle.tokenizer(), defaultdict[str, list[list[int]]](list)
    for row in map(json.loads, reversed(PROMPTS.read_text().splitlines())):
        chat = [{"role": "user", "content": row["prompt"]}]
        found[row["domain"]].append(encode_chat(tokenizer, chat, add_generation_prompt=True))
    return found


@pytest.fixture(scope="session")
def prompts(all_prompts: dict[str, list[list[int]]]) -> list[list[int]]:
    """A prompt of every domain, in token ids."""
    return [of_domain[-1] for of_domain in all_prompts.values()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(request: pytest.FixtureRequest, bundle: Bundle) -> AsyncIterator[Engine]:
    """A vLLM engine that hosts the module's METHODS under its CONFIG."""
    loaded = load_engine(request.module.METHODS, bundle, request.module.CONFIG)
    yield loaded
    loaded.close()


@pytest.fixture
def resolved(monkeypatch):
    """Return the configuration that vLLM makes of an engine's arguments where there are graphs."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    kind = type(current_platform)
    monkeypatch.setattr(kind, "support_static_graph_mode", classmethod(lambda _: True))
    monkeypatch.setattr(kind, "check_and_update_config", classmethod(lambda *_: None))
    for name, value in FIRST_RUNNER.items():
        monkeypatch.setenv(name, value)

    def config(arguments: dict[str, Any]) -> Any:
        return AsyncEngineArgs(**arguments).create_engine_config()

    return config
