"""Whether vLLM still collects outputs where we replace its collector."""

import pytest

pytestmark = pytest.mark.vllm

COLLECTOR = "RequestOutputCollector"


@pytest.fixture
def async_llm(monkeypatch: pytest.MonkeyPatch):
    """vLLM's module as it is before anything is replaced."""
    from vllm.v1.engine import async_llm, output_processor

    monkeypatch.setattr(async_llm, COLLECTOR, getattr(output_processor, COLLECTOR))
    return async_llm


def test_this_vllm_takes_our_collector(async_llm) -> None:
    from workers.vllm_engine.answer import StepCollector, collect_steps

    for _ in range(2):
        collect_steps()
    assert getattr(async_llm, COLLECTOR) is StepCollector


def test_a_vllm_that_does_not_use_it_is_refused(async_llm, monkeypatch) -> None:
    from workers.vllm_engine.answer import collect_steps

    monkeypatch.setattr(async_llm.AsyncLLM, "add_request", lambda self: self)
    with pytest.raises(RuntimeError, match=rf"AsyncLLM\.add_request has no {COLLECTOR}"):
        collect_steps()


def test_a_collector_without_a_method_is_refused(async_llm, monkeypatch) -> None:
    from workers.vllm_engine.answer import collect_steps

    monkeypatch.delattr(getattr(async_llm, COLLECTOR), "get_nowait")
    with pytest.raises(RuntimeError, match=rf"{COLLECTOR} has no get_nowait"):
        collect_steps()
