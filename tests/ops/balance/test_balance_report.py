"""The arithmetic of `bench balance`, and what it refuses."""

import pytest

from ops.balance.report import Sample, largest_over_smallest, offered, time_averages
from ops.service.client import Reply


def reply(reason, method="naive", seconds=1.0):
    headers = {"x-specadapt-reason": reason, "x-specadapt-method": method}
    return Reply(headers=headers, seconds=seconds)


def test_a_report_holds_until_the_next_one():
    samples = [
        Sample("a", 0.0, 0),
        Sample("a", 1.0, 100),
        Sample("a", 1.5, 40),
        Sample("a", 4.0, 9),
    ]
    assert time_averages(samples) == {"a": pytest.approx((0 + 50 + 100) / 4)}


def test_a_report_that_is_seen_twice_counts_once_and_clocks_may_differ():
    samples = [Sample("a", 0.0, 10), Sample("a", 0.0, 10), Sample("a", 1.0, 0)]
    samples += [Sample("b", 1000.0, 20), Sample("b", 1002.0, 0), Sample("c", 5.0, 7)]
    assert time_averages(samples) == {"a": 10.0, "b": 20.0}


def test_balance_is_the_largest_over_the_smallest():
    assert largest_over_smallest({"a": 30.0, "b": 20.0}) == 1.5
    assert largest_over_smallest({"a": 30.0, "b": 0.0}) is None
    assert largest_over_smallest({}) is None


def test_a_load_counts_errors_and_reasons():
    replies = [reply("favourite"), reply("favourite"), reply("load", "ngram", 4.0), None]
    figures = offered(0.3, 2.0, replies, [])
    assert (figures["requests"], figures["errors"]) == (4, 1)
    assert figures["reasons"] == {"favourite": pytest.approx(2 / 3), "load": pytest.approx(1 / 3)}
    assert figures["methods"] == {"naive": 2, "ngram": 1}
    assert figures["mean_latency_s"] == 2.0


@pytest.mark.parametrize("shares", ["", "0.3,x", "0,0.5"])
def test_shares_are_numbers_above_0(specadapt, shares):
    result = specadapt("bench", "balance", "--shares", shares)
    assert result.exit_code == 2
    assert "--shares" in result.stderr


def test_a_method_that_is_not_served_is_named(specadapt):
    result = specadapt("bench", "balance", "--method", "warp")
    assert result.exit_code == 2
    assert "warp" in result.stderr
