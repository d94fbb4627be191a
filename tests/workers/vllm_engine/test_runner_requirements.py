"""A release of vLLM that lacks what we or a configuration need is refused by the names it lacks."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from workers.vllm_engine import requirements
from workers.vllm_engine.versions import check_arguments

pytestmark = pytest.mark.vllm

USES = (requirements.COLLECTING, requirements.CPU_REPAIRS, requirements.SHARED)


@pytest.mark.parametrize("uses", USES, ids=lambda uses: uses.uses)
def test_the_installed_release_has_everything(uses):
    requirements.refuse_changes(uses)


@pytest.mark.parametrize("uses", USES, ids=lambda uses: uses.uses)
def test_each_name_that_a_release_lacks_is_told(uses):
    """Whatever is listed is looked for: in functions, classes and modules alike."""
    gone = {path: (*names, "gone_attribute") for path, names in uses.named.items()}
    with pytest.raises(RuntimeError, match=r"Install a supported release") as refused:
        requirements.refuse_changes(replace(uses, named=gone))
    told = str(refused.value).split(": ", 1)[1].split(". Install")[0].split("; ")
    assert told == [f"{path} has no gone_attribute" for path in gone]


def test_changed_parameters_and_what_is_gone_are_told_together():
    shared = requirements.SHARED
    propose = "vllm.v1.spec_decode.ngram_proposer:NgramProposer.propose"
    replaced = {path: () for path in shared.replaced}
    called = {propose: ("tokens",), "vllm.gone:Module": (), "vllm:Gone.method": ()}
    with pytest.raises(RuntimeError) as refused:
        requirements.refuse_changes(replace(shared, replaced=replaced, called=called))
    for said in (
        "GPUModelRunner.propose_draft_token_ids takes (scheduler_output, ",
        "NgramProposer.propose takes (num_speculative_tokens, ",
        "instead of (tokens)",
        "there is no vllm.gone:Module",
        "there is no vllm:Gone.method",
        "or leave out layout: shared",
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
