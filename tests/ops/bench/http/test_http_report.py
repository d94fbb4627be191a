"""The arithmetic of `bench http`."""

import pytest

from ops.bench.http.report import Block, Pair, over_bare, overhead_ms, streaming_cost, summarise
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


def test_the_ingress_is_compared_pair_by_pair():
    # The machine is slower with every pair; what the ingress adds to the bare hop stays.
    pairs = [Pair(ingress=bare + 2.0, bare=bare) for bare in (3.0, 5.0, 9.0, 40.0)]
    figures = over_bare(pairs, seed=0)
    assert figures["bare_overhead_ms_p50"] == 7.0
    assert figures["ingress_over_bare_ms_p50"] == pytest.approx(2.0)
    low, high = figures["ingress_over_bare_ms_p50_ci95"]
    assert low == pytest.approx(2.0)
    assert high == pytest.approx(2.0)


def test_the_interval_of_the_pairs_holds_their_median():
    pairs = [Pair(ingress=4.0 + 0.1 * i, bare=3.0) for i in range(30)]
    figures = over_bare(pairs, seed=0)
    low, high = figures["ingress_over_bare_ms_p50_ci95"]
    assert low < figures["ingress_over_bare_ms_p50"] < high


def test_streaming_costs_what_it_loses_of_the_tokens_a_second():
    blocks = [Block(100, 2.2, 100, 2.0), Block(300, 6.6, 300, 6.0)]
    figures = streaming_cost(blocks, seed=0)
    assert figures["whole_tokens_per_s"] == pytest.approx(50.0)
    assert figures["streaming_cost"] == pytest.approx(1 - 1 / 1.1)
    assert figures["streaming_cost_ci95"] == pytest.approx([1 - 1 / 1.1] * 2)
