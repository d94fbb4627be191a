"""`specadapt plan`: the smallest fleet within objectives, and bad input."""

from dataclasses import replace

import pytest

from ops.load.arrivals import poisson
from ops.simulate.experiment import Experiment
from ops.simulate.outcomes import Objectives
from ops.simulate.planning import Search, smallest
from schemas import AppConfig
from tests.ops.simulate.worlds import Constant, workload_of, world_of

pytestmark = pytest.mark.usefixtures("fitted")


def search_of(rate, most=64, **objectives):
    return Search(
        policy="only_naive",
        shared=True,
        shares=(),
        least=1,
        most=most,
        unit=poisson(300, seed=0),
        rate=rate,
        objectives=Objectives(**objectives),
        share=0.95,
        seed=0,
    )


@pytest.fixture(scope="module")
def small():
    """Answers of 3.5 s, two at a time on a replica."""
    return world_of(workload_of((3, 3)), rows=2, costs=Constant(1.0))


@pytest.mark.parametrize("rate", [1.0, 2.5, pytest.param(3.4, marks=pytest.mark.slow)])
def test_one_replica_fewer_would_not_do(small, rate):
    found = smallest(small, search_of(rate, latency=8.0))
    assert found["good_share"] >= 0.95
    least = found["replicas"]
    assert least > 1
    assert smallest(small, search_of(rate, most=least - 1, latency=8.0)) is None
    assert smallest(small, search_of(rate, most=least, latency=8.0)) == found


def test_more_demand_and_tighter_objectives_want_more(small):
    sizes = [
        smallest(small, search_of(rate, latency=latency))["replicas"]
        for rate, latency in ((0.5, 8.0), (2.0, 8.0), (2.0, 4.9))
    ]
    assert sizes == sorted(set(sizes))


def test_what_takes_too_long_alone_is_not_found(small):
    assert smallest(small, search_of(0.1, latency=3.4)) is None


def test_methods_have_replicas_by_the_work_that_they_do_best():
    """Two at a time: the first prompt takes naive 1.5 s, the second one ngram 3."""
    world = world_of(workload_of((2, 8), (8, 5)), rows=2, costs=Constant(1.0))
    shares = Experiment(AppConfig(), world, {}, Constant()).shares()
    assert shares == pytest.approx((1 / 3, 2 / 3))
    search = replace(search_of(1.0, latency=20.0), policy="routed", shared=False, shares=shares)
    found = smallest(world, search)
    assert sum(found["fleet"].values()) == found["replicas"] > 2
    assert found["fleet"]["ngram"] > found["fleet"]["naive"] > 0


@pytest.fixture(scope="module")
def command(world):
    folder, _, _ = world
    return [
        *["plan", "--config", folder / "config.yaml", "--routing", folder / "routing"],
        *["--methods", "naive,ngram", "--requests", 200, "--max-tokens", 10],
    ]


def test_the_cheapest_comes_first(specadapt, command):
    flags = ["--latency-slo", 10.0, "--price", 2.5]
    found = specadapt.json(*command, "--rate", 30, *flags)
    ways = {(one["policy"], one["layout"]) for one in found["plans"]}
    assert ways == {
        ("routed", "shared"),
        ("routed", "per_method"),
        ("only_naive", "one method"),
        ("only_ngram", "one method"),
    }
    prices = [one["price_per_hour"] for one in found["plans"]]
    assert prices == sorted(prices)
    assert found["best"] == found["plans"][0]
    for one in found["plans"]:
        assert one["price_per_hour"] == 2.5 * one["replicas"]
        assert one["price_per_million_tokens"] == pytest.approx(
            one["price_per_hour"] / 3600 / one["tokens_per_s"] * 1e6
        )
        assert one["good_share"] >= 0.95
        assert sum(one["fleet"].values()) == one["replicas"]


def test_what_a_service_adds_is_planned_for(specadapt, command, tmp_path):
    file = tmp_path / "overhead.json"
    # Of the cores of the machine that was calibrated none are shared: replicas bring their own.
    file.write_text('{"request_seconds": 0.5, "step_factor": 50.0, "cores": 0.01}')
    asked = [*command, "--methods", "naive", "--rate", 30, "--latency-slo", 10.0]
    bare = specadapt.json(*asked)["best"]
    added = specadapt.json(*asked, "--overhead", file)
    assert added["best"]["latency_mean_s"] > bare["latency_mean_s"] + 0.5
    assert added["best"]["replicas"] > bare["replicas"]
    assert added["settings"]["overhead"]["request_seconds"] == 0.5
    assert added["settings"]["overhead"]["cores"] is None
    assert "--overhead:" in specadapt.refusal(*asked, "--overhead", tmp_path / "none.json")


@pytest.mark.slow
def test_hardware_is_compared_by_its_price(specadapt, command):
    flags = ["--rate", 30, "--latency-slo", 10.0, "--costs", "measured", "--costs", "h100-llama-8b"]
    found = specadapt.json(*command, *flags, "--price", 0.5, "--price", 4.0)
    assert found["settings"]["price"] == {"measured": 0.5, "h100-llama-8b": 4.0}
    assert {one["costs"] for one in found["plans"]} == {"measured", "h100-llama-8b"}
    prices = [one["price_per_hour"] for one in found["plans"]]
    assert prices == sorted(prices)
    for one in found["plans"]:
        each = found["settings"]["price"][one["costs"]]
        assert one["price_per_hour"] == each * one["replicas"]
    refused = specadapt.refusal(*command, *flags, "--price", 1.0)
    assert "--price: got 1 prices for 2 --costs; give one for each" in refused


@pytest.mark.slow
def test_where_nothing_does_it_says_so(specadapt, command):
    done = specadapt(*command, "--rate", 1, "--latency-slo", 0.0)
    assert done.exit_code == 0
    assert "No fleet of up to 200 replicas" in done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--rate", 1], "--ttft-slo, --tpot-slo, --latency-slo: set at least one"),
        (["--rate", 1e6, "--ttft-slo", 1], "--most: at 1e+06 requests per second"),
    ],
)
def test_bad_input_is_named(specadapt, command, flags, says):
    assert says in specadapt.refusal(*command, *flags)
