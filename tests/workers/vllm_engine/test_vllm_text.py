"""Text of vLLM's answers, step by step, from tokenizers that write characters byte by byte."""

from typing import Any

import pytest
from conftest_bundle import byte_tokenizer, fallback_tokenizer
from decoding import request

pytestmark = pytest.mark.vllm


def answered(backend: Any, steps: list[list[int]], stop: tuple[str, ...] = ()) -> tuple[str, str]:
    """The text and the end of an answer whose steps gave these tokens, the last one for length."""
    from vllm.outputs import CompletionOutput, RequestOutput

    from workers.engine_load import EngineLoad
    from workers.vllm_engine.answer import Answer

    load = EngineLoad()
    answer, text = Answer(request("m", [1], stop=stop), backend, (), load), ""
    for at, tokens in enumerate(steps):
        reason = "length" if at == len(steps) - 1 else None
        completion = CompletionOutput(0, "", tokens, None, None, finish_reason=reason)
        chunk = answer.step(
            RequestOutput("r", None, [1], None, [completion], finished=reason is not None)
        )
        text += chunk.text
        if chunk.finish_reason is not None:
            return text, chunk.finish_reason
    raise AssertionError("an answer without an end")


@pytest.mark.parametrize("make", [byte_tokenizer, fallback_tokenizer])
@pytest.mark.parametrize("size", [1, 3])
def test_characters_of_several_tokens(make: Any, size: int) -> None:
    backend = make().backend_tokenizer
    tokens = backend.encode("say 😀中 and\n\ufffd", add_special_tokens=False).ids
    steps = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    assert answered(backend, steps) == ("say 😀中 and\n\ufffd", "length")
    assert answered(backend, steps, ("😀中",)) == ("say ", "stop")
    assert answered(backend, [tokens[:5], tokens[5:6]])[0] == backend.decode(tokens[:6])
