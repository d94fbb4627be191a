"""`python -m training.tuning_process JOB PARENT`: one tuning in a process of lowest priority.

JOB is a file with a TuningJob in JSON. The process ends with the one of id PARENT that started it.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

LOWEST_PRIORITY = 19
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


def main() -> None:
    """Run the job and write its verdict."""
    if sys.platform == "linux":
        # A process that is stopped could not notice by itself that its starter was killed.
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):  # it was killed before that
        sys.exit("the process that started this one has ended")
    os.nice(LOWEST_PRIORITY)
    from schemas import TuningJob
    from training.tune import run_job

    job = TuningJob.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    verdict = run_job(job)
    temporary = job.verdict.with_suffix(".new")
    temporary.write_text(verdict.model_dump_json(), encoding="utf-8")
    temporary.replace(job.verdict)


if __name__ == "__main__":
    main()
