"""The environment of vLLM's processes, which the replica starts."""

import os
import sys
from pathlib import Path

from schemas import EngineConfig
from workers.vllm_engine.lifeline import TIED
from workers.vllm_engine.versions import cpu_build

FIRST_RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""The variable that makes vLLM take its first model runner, which several methods need."""

OPENMP = "libiomp5.so"
"""Intel's OpenMP, which vLLM's CPU build preloads; intel-openmp installs it in lib/."""


def process_environment(config: EngineConfig, *, shared: bool) -> dict[str, str]:
    """Return environment variables for a process that starts a vLLM engine, and for its
    children.

    shared: the engine holds several methods.
    """
    values = {
        "OMP_NUM_THREADS": str(config.threads),
        # vLLM's n-gram look-up uses numba, whose idle threads would spin on the scheduler's
        # core.
        "NUMBA_NUM_THREADS": str(config.threads),
        TIED: "1",
        # A forked process would inherit its siblings' lifelines.
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
    if shared:
        values |= FIRST_RUNNER
    preloaded = {} if config.device == "cuda" else preloaded_openmp()
    if preloaded:
        values |= {
            **preloaded,
            # The deployment assigns cores (engine.pin_cores): replicas that bind themselves
            # would all take the first core.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # An idle thread sleeps after a millisecond: replicas share cores.
            "KMP_BLOCKTIME": "1",
        }
    return values


def preloaded_openmp() -> dict[str, str]:
    """Return the variable that preloads OpenMP for vLLM's CPU build; none for other builds, and
    where OpenMP is not installed."""
    library = Path(sys.prefix) / "lib" / OPENMP
    if not cpu_build() or not library.is_file():
        return {}
    others = os.environ.get("LD_PRELOAD", "").split(":")
    mine = str(library)
    return {"LD_PRELOAD": ":".join([mine, *(o for o in others if o and o != mine)])}
