"""A drafter that fails in one of two processes of tensor parallelism, with gloo."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.vllm

RANK = """
import json
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist

from workers.vllm_engine.drafting import attempts

rank, file, early = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "before"
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
of_models = dist.new_group(backend="gloo")
group = SimpleNamespace(world_size=2, cpu_group=dist.group.WORLD)
attempts.get_tp_group = lambda: group
attempts.AGREEMENT_SECONDS = 2.0

lost = []
drafters = attempts.Attempts({"eagle3": SimpleNamespace(lose=lost.extend)}, ["eagle3"])

def drafts(fails):
    if fails and early:
        raise RuntimeError("broken on purpose")
    dist.all_reduce(torch.zeros(1), group=of_models)
    if fails:
        raise RuntimeError("broken on purpose")
    return {0: [7]}

said = [
    drafters.call("eagle3", ["0"], lambda: drafts(rank == 1 and step_number == 1))
    for step_number in range(3)
]
print(json.dumps([said, drafters.failures.counts, lost]))
"""


def ranks(tmp_path, when: str) -> list[subprocess.Popen[str]]:
    """Start both processes. when: rank 1 fails in the second step, before or after the forward
    that both do together."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "ranks"), when],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]


def test_both_leave_out_the_drafts_of_one_that_failed(tmp_path):
    """They draft on together: their KV and their failures are alike."""
    ended = [process.communicate(timeout=120) for process in ranks(tmp_path, "after")]
    for out, errors in ended:
        assert json.loads(out or "null") == [
            [{"0": [7]}, None, {"0": [7]}],
            {"eagle3": 1},
            ["0"],
        ], errors
    assert "it failed in another process" in ended[0][1]
    assert "broken on purpose" in ended[1][1]


def test_the_engine_ends_where_the_other_waits_in_a_forward(tmp_path):
    """vLLM's executor ends all processes when one fails."""
    waiting, failed = ranks(tmp_path, "before")
    try:
        _, errors = failed.communicate(timeout=120)
        assert failed.returncode == 1
        assert "a drafter failed in one process of tensor parallelism" in errors
        assert "broken on purpose" in errors
    finally:
        waiting.kill()
        waiting.communicate()
