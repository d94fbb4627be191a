"""One vLLM engine with all the methods that can share it, for all tests of this folder."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from engine_config import CONFIG

from workers.bundle import Bundle
from workers.engine import Engine
from workers.loader import load_engine

METHODS = (
    "vllm_naive",
    "vllm_ngram",
    "vllm_suffix",
    "vllm_medusa",
    "vllm_eagle3",
    "vllm_eagle",
    "vllm_draft",
    "vllm_adaptive",
)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def engine(bundle: Bundle) -> AsyncIterator[Engine]:
    """Tests leave it with the bundle's own heads."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
    loaded = load_engine(METHODS, bundle, CONFIG)
    yield loaded
    loaded.close()
