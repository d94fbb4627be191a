"""`bench chaos` as a command: three faults on a service of tiny models."""

import pytest
from served import bench_figures, service_config

# Three minutes: a service of its own, and what is killed has to start again.
pytestmark = pytest.mark.slow


def test_a_replica_and_the_feedback_actor_are_killed_and_the_store_is_away(tiny_bundle, tmp_path):
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    faults = ("--fault", "replica", "--fault", "feedback", "--fault", "store")
    flags = (*faults, "--rate", 4, "--quiet", 3, "--max-tokens", 100)
    figures = bench_figures("chaos", config, tiny_bundle, tmp_path, *flags)
    replica, feedback, store = figures["faults"]
    assert replica["befell"] in ("naive", "ngram")
    for fault in (replica, feedback, store):
        assert fault["requests_before"] == fault["answered_before"] > 0
        assert fault["requests"] == fault["answered"] + fault["broken_off"] > 0
        assert fault["service_recovered_s"] > 0.0
        assert fault["observations_acknowledged"] > 0
        assert fault["acknowledged_lost"] == fault["never_counted"] == 0
    assert feedback["broken_off"] == store["broken_off"] == 0
