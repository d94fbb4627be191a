"""The environment that vLLM's processes need, which are started by the replica's."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas import EngineConfig
from workers.vllm_engine.lifeline import TIED

OPENMP = "libiomp5.so"
"""Intel's OpenMP, which vLLM's CPU build wants preloaded; intel-openmp puts it into lib/."""


def process_environment(config: EngineConfig, *, shared: bool) -> dict[str, str]:
    """Variables by name, for a process that starts a vLLM engine and for those it starts.

    shared: the engine holds several methods.
    """
    values = {
        "OMP_NUM_THREADS": str(config.threads),
        # vLLM looks n-grams up with numba, whose idle threads would spin on the scheduler's core.
        "NUMBA_NUM_THREADS": str(config.threads),
        TIED: "1",
        # A forked process would hold its sisters' lifelines.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
    if shared:  # vLLM's second model runner drafts with one method for all
        values["VLLM_USE_V2_MODEL_RUNNER"] = "0"
    library = Path(sys.prefix) / "lib" / OPENMP
    if config.device != "cuda" and library.is_file():
        values |= {
            "LD_PRELOAD": _preloaded(str(library)),
            # Cores are the deployment's business (engine.pin_cores): replicas that each bind
            # themselves to the first core would share it.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # An idle thread sleeps after a millisecond: replicas share cores.
            "KMP_BLOCKTIME": "1",
        }
    return values


@contextmanager
def process_environment_of(config: EngineConfig, *, shared: bool) -> Iterator[None]:
    """The same for the processes that this one starts meanwhile."""
    values = process_environment(config, shared=shared)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _preloaded(library: str) -> str:
    others = os.environ.get("LD_PRELOAD", "").split(":")
    return ":".join([library, *(other for other in others if other and other != library)])
