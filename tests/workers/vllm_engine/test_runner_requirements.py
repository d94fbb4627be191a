"""A release of vLLM that lacks what we or a configuration need is refused by the names it lacks."""

from types import SimpleNamespace

import pytest

from workers.vllm_engine.versions import check_arguments

pytestmark = pytest.mark.vllm


def runner(*, without: str = ""):
    """A runner's attributes before it has loaded a model."""
    from workers.vllm_engine.drafting.worker import BATCH, RUNNER

    batch = SimpleNamespace(**{name: None for name in BATCH if name != without})
    held = {name: None for name in RUNNER if name != without}
    return SimpleNamespace(**(held | {"input_batch": batch}))


def test_the_installed_release_has_everything():
    from workers.vllm_engine.drafting.worker import refuse_changes

    refuse_changes(runner())


@pytest.mark.parametrize("name", ["requests", "num_prompt_tokens"])
def test_a_missing_attribute_is_named(name):
    from workers.vllm_engine.drafting.worker import refuse_changes

    with pytest.raises(RuntimeError, match=rf"has no {name}\. Install a supported release"):
        refuse_changes(runner(without=name))


def test_changed_parameters_and_fields_are_named_together(monkeypatch):
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from workers.vllm_engine.drafting import worker

    monkeypatch.setitem(worker.CALLED, NgramProposer.propose, ("tokens",))
    monkeypatch.setitem(worker.CALLED, NgramProposer, ())
    monkeypatch.setitem(worker.REPLACED, GPUModelRunner.propose_draft_token_ids, ())
    monkeypatch.setitem(worker.NAMES, SchedulerOutput, ("ended",))
    with pytest.raises(RuntimeError) as refused:
        worker.refuse_changes(runner())
    for said in (
        "NgramProposer.propose takes (num_speculative_tokens, ",
        "NgramProposer takes (vllm_config) instead of ()",
        "GPUModelRunner.propose_draft_token_ids takes (scheduler_output, ",
        "SchedulerOutput has no ended",
    ):
        assert said in str(refused.value)


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
