"""`bench soak` as a command: half a minute on a service of tiny models."""

import pytest
from served import bench_figures, service_config

pytestmark = pytest.mark.slow


def test_half_a_minute(tiny_bundle, tmp_path):
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    flags = ("--rate", 4, "--minutes", 0.5, "--warm-up", 0.1, "--every", 2, "--max-tokens", 40)
    figures = bench_figures("soak", config, tiny_bundle, tmp_path, *flags)
    assert figures["outcomes"] == {"streamed": 72, "left": 24, "whole": 24}
    roles = {row["role"] for row in figures["processes"]}
    assert roles == {"controller", "proxy", "feedback", "loads", "ingress", "naive", "ngram"}
    before, after = figures["idle"]["tasks"]
    assert before == after
    before, after = figures["idle"]["processes"]
    assert before == after
