"""A release of vLLM that lacks what we or a configuration need is refused by the names it lacks."""

import re
from types import SimpleNamespace

import pytest

from workers.vllm_engine.requirements import COLLECTOR, CPU_REPAIRS, SHARED, refuse_changes
from workers.vllm_engine.versions import check_arguments

pytestmark = pytest.mark.vllm

ALL = "".join(map(str.rstrip, (COLLECTOR, CPU_REPAIRS, SHARED)))


def changes(needed: str) -> list[str]:
    with pytest.raises(RuntimeError, match=r"what our tests rest on: ") as refused:
        refuse_changes("our tests", needed, otherwise=", or run none")
    said, help_ = str(refused.value).split(" rest on: ")[1].rsplit(". Install a ", 1)
    assert help_.endswith(", or run none")
    return said.split("; ")


def test_the_installed_release_has_everything():
    refuse_changes("our tests", ALL)


def test_each_name_that_a_release_lacks_is_told():
    """Whatever is listed is looked for: in functions, classes and modules alike."""
    lines = re.sub(r"\n +", " ", ALL.strip()).splitlines()
    named = [line.split()[0] for line in lines if line and "(" not in line]
    assert changes("\n".join(f"{one} gone" for one in named)) == [f"{p} has no gone" for p in named]


def test_other_parameters_and_what_is_gone_are_told_together():
    runner = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
    ngram = "vllm.v1.spec_decode.ngram_proposer:NgramProposer"
    first, replaced, needed, *gone = changes(
        f"""
{ngram}.propose(tokens, ...)
{runner}._dummy_run(num_tokens)
{ngram}(...)
vllm.gone:Module name
vllm:Gone.method(name)
"""
    )
    assert first.startswith(f"{ngram}.propose takes (num_speculative_tokens, ")
    assert first.endswith(" instead of (tokens, ...)")
    assert replaced.startswith(f"{runner}._dummy_run takes (num_tokens, ")
    assert needed == f"{ngram} takes (vllm_config) instead of (...)"
    assert gone == ["there is no vllm.gone:Module", "there is no vllm:Gone.method"]


def test_the_second_model_runner_is_refused(monkeypatch):
    from workers.vllm_engine.drafting import worker

    monkeypatch.setattr(worker.Worker, "init_device", lambda _self: None)
    second = object.__new__(worker.SharedWorker)
    body = {"methods": {}, "drafters": {}, "host": None, "adaptive": None}
    second.vllm_config = SimpleNamespace(additional_config={worker.KEY: body})
    second.use_v2_model_runner = True
    with pytest.raises(RuntimeError, match="set VLLM_USE_V2_MODEL_RUNNER=0"):
        second.init_device()


def test_an_argument_that_the_release_does_not_have_is_told_with_those_that_it_has():
    said = r"vLLM .* has no such engine argument\. It has: .*quantization"
    with pytest.raises(ValueError, match=rf"^engine\.vllm\.quantisation: {said}"):
        check_arguments({"quantisation": "fp8"})
