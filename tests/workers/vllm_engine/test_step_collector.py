"""Whether vLLM still collects outputs where we replace its collector."""

from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.vllm


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """vLLM's module and ours, as they are before anything is replaced."""
    from vllm.v1.engine import async_llm

    from workers.vllm_engine import answer

    monkeypatch.setattr(async_llm, answer.NAME, answer.RequestOutputCollector)
    return SimpleNamespace(async_llm=async_llm, answer=answer)


def test_this_vllm_takes_our_collector(modules) -> None:
    for _ in range(2):
        modules.answer.collect_steps()
    assert modules.async_llm.RequestOutputCollector is modules.answer.StepCollector


def test_a_vllm_that_does_not_use_it_is_refused(modules, monkeypatch) -> None:
    monkeypatch.setattr(modules.async_llm.AsyncLLM, "add_request", lambda self: self)
    with pytest.raises(RuntimeError, match=r"collects outputs by async_llm\.RequestOutputCollec"):
        modules.answer.collect_steps()


def test_a_collector_without_a_method_is_refused(modules, monkeypatch) -> None:
    monkeypatch.delattr(modules.answer.RequestOutputCollector, "get_nowait")
    with pytest.raises(RuntimeError, match=r"RequestOutputCollector\.get_nowait"):
        modules.answer.collect_steps()
