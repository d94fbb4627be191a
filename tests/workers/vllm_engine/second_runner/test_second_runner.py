"""vLLM's second model runner with several methods, under Triton's interpreter: several seconds a
token, so that prompts and answers are short."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from decoding import assert_greedy, reference

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
pytest.importorskip("vllm", reason="vLLM is not installed: make test-vllm")
pytest.importorskip("triton", reason="Triton's interpreter is not installed")

SCRIPT, TESTS = Path(__file__).with_name("interpreted_engine.py"), Path(__file__).parents[3]
ROOT, SECONDS, TOKENS = TESTS.parent, 400, 12


def decoded(**job: Any) -> dict[str, Any]:
    """What interpreted_engine.py prints; answers are in the order of prompts, then methods."""
    paths = os.pathsep.join([str(ROOT), str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, SCRIPT, json.dumps({"tokens": TOKENS, **job})],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["runner"] == "vllm.v1.worker.cpu.model_runner", "the second runner did not run"
    return found


@pytest.fixture(scope="module")
def short(bundle, prompts) -> list[list[int]]:
    """A prompt that has its answer's beginning, and one that is read in pieces."""
    begun = prompts[0][:20]
    return [[*begun, *reference(bundle, begun, TOKENS), *begun], prompts[3][:40]]


def assert_exact(bundle, prompts, methods, answers) -> None:
    of = [prompt for prompt in prompts for _ in methods]
    for prompt, answer in zip(of, answers, strict=True):
        assert_greedy(bundle, prompt, answer["tokens"], TOKENS, ignore_eos=True)


def by_step(answers) -> list[Any]:
    return [(answer["drafted"], answer["accepted"]) for answer in answers]


@pytest.mark.parametrize("ahead", [False, True], ids=["in turn", "async"])
def test_methods_share_a_batch_and_draft_as_they_do_alone(bundle, short, ahead):
    methods = ("vllm_naive", "vllm_ngram", "vllm_eagle3", "vllm_suffix")
    mixed = decoded(methods=methods, prompts=short, **{"async": ahead})["answers"]
    assert_exact(bundle, short, methods, mixed)
    plain, ngram, eagle3, suffix = (mixed[row :: len(methods)] for row in range(len(methods)))
    assert not any(answer["drafted"] for answer in plain), "a plain request verifies nothing"
    for answers in (ngram, suffix):
        assert sum(answers[0]["accepted"]) > 2
    assert sum(sum(answer["accepted"]) for answer in eagle3) > 2
    # Alone all rows are the head's, so that vLLM's own batch reaches its own class. Another row's
    # hidden states or KV would change what is accepted.
    alone = decoded(methods=["vllm_eagle3"], prompts=short, **{"async": ahead})
    assert by_step(eagle3) == by_step(alone["answers"])


def test_preempted_requests_go_on_exactly(bundle, short):
    methods = ("vllm_naive", "vllm_eagle", "vllm_suffix")
    few = {"block_size": 32, "num_gpu_blocks_override": 10}
    found = decoded(methods=methods, prompts=short, arguments=few, **{"async": True})
    assert found["preempted"] > 0
    assert_exact(bundle, short, methods, found["answers"])
