"""The arithmetic of `bench http`."""

import pytest

from ops.bench.http.report import overhead_ms, summarise
from ops.harness.chat_client import Reply


def reply(first_byte=0.050, engine=30.0, routing=8.0, tokens=20, method="naive"):
    speculative = {"engine_first_token_ms": engine, "routing_ms": routing}
    return Reply(
        headers={"x-specadapt-method": method},
        usage={"completion_tokens": tokens, "speculative": speculative},
        first_byte_seconds=first_byte,
        first_text_seconds=first_byte,
    )


def test_overhead_is_what_neither_the_engine_nor_the_decision_took():
    assert overhead_ms(reply()) == pytest.approx(12.0)
    assert overhead_ms(Reply()) is None


def test_a_run_is_summed_up():
    figures = summarise([reply(), reply(first_byte=0.060, method="ngram")], seconds=2.0)
    assert figures["tokens_per_s"] == 20.0
    assert figures["requests_per_s"] == 1.0
    assert figures["overhead_ms_p50"] == pytest.approx(17.0)
    assert figures["methods"] == {"naive": 1, "ngram": 1}
