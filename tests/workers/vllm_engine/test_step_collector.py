"""Whether vLLM still collects outputs where we replace its collector."""

import pytest

pytestmark = pytest.mark.vllm

async_llm = pytest.importorskip("vllm.v1.engine.async_llm")
from workers.vllm_engine import answer  # noqa: E402


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_llm, answer.NAME, answer.RequestOutputCollector)


def test_this_vllm_takes_our_collector() -> None:
    answer.collect_steps()
    answer.collect_steps()
    assert async_llm.RequestOutputCollector is answer.StepCollector


def test_a_vllm_that_does_not_use_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_llm.AsyncLLM, "add_request", lambda self: self)
    with pytest.raises(RuntimeError, match=r"collects outputs by async_llm\.RequestOutputCollec"):
        answer.collect_steps()


def test_a_collector_without_a_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(answer.RequestOutputCollector, "get_nowait")
    with pytest.raises(RuntimeError, match=r"RequestOutputCollector\.get_nowait"):
        answer.collect_steps()
