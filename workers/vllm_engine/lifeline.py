"""End vLLM's processes with the process that started them."""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import wait

TIED = "SPECADAPT_TIED_TO_PARENT"
"""Set for the processes of our engines only; vLLM loads plugins everywhere."""
GRACE_SECONDS = 10.0
"""Seconds for an orderly end before the process is killed."""


def end_with_parent() -> None:
    """Watch the parent from a thread and end this process once it is gone.

    A killed replica closes no engine, and vLLM's scheduler would keep its memory or GPU.
    """
    parent = multiprocessing.parent_process()
    if parent is not None and os.environ.get(TIED):
        watch = threading.Thread(target=_watch, args=(parent.sentinel,), name="lifeline")
        watch.daemon = True
        watch.start()


def _watch(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
