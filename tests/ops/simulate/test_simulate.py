"""`specadapt simulate`: the router that serves, in worlds of three methods and two clusters."""

import asyncio
from pathlib import Path

import pytest

from ops.common.simulated_time import run_simulated
from ops.simulate.replicas import Machine
from ops.simulate.run import Asked, excess, requests_until_found, simulate
from ops.simulate.speeds import Speeds
from ops.simulate.world import Base, World
from router.table import load_table

DEMO = Path(__file__).parents[3] / "bundles" / "demo" / "routing"
METHODS = ("naive", "ngram", "eagle3")
ACCEPTANCE = {"naive": (1.0, 1.0), "ngram": (1.3, 4.0), "eagle3": (2.5, 2.5)}
BASE = Base.model_validate(
    {
        "methods": METHODS,
        "clusters": {"weights": (0.6, 0.4)},
        "acceptance": {"greedy": ACCEPTANCE, "high": ACCEPTANCE},
        "step_seconds": {name: {1: 0.05, 8: 0.1} for name in METHODS},
        "prefill_seconds": {name: {80: 0.1, 400: 0.5} for name in METHODS},
        "output_tokens": (25.0, 25.0),
    }
)


def run(requests: int = 30, seed: int = 0, **fields: object) -> dict:
    """Return the figures, and how many requests lost seconds by a failure or a client's leaving."""
    figures, asked = simulate(World.model_validate(fields), BASE, requests, seed)
    return figures | {"lost": sum(one.lost is not None for one in asked)}


def one(method: str, lost: float | None = None) -> Asked:
    asked = Asked(0, 20, 1.0, 1.0, 0.5, 0.5, 0, method=method, best="eagle3", lost=lost)
    asked.expected, asked.least = {"eagle3": 1.0, "naive": 3.0}[method], 1.0
    return asked


def test_excess_is_zero_for_the_best_choices_and_counts_what_was_lost():
    assert excess([one("eagle3")] * 5) == 0.0
    assert excess([one("eagle3"), one("naive")]) == pytest.approx(1.0)
    assert excess([one("eagle3", lost=0.5)]) == pytest.approx(0.5)


@pytest.mark.parametrize(("others", "found"), [(0, 0), (25, 5), (60, 40), (90, None)])
def test_the_best_method_is_found_where_it_gets_half_of_the_next_forty(others, found):
    asked = [one("naive")] * others + [one("eagle3")] * (100 - others)
    assert requests_until_found(asked) == found


def test_a_right_table_chooses_the_best_methods_and_a_wrong_one_does_not():
    right, wrong = run(40), run(12, believed=[{"method": "eagle3", "step": 4.0}])
    assert right["excess"] < 0.12 < 0.2 < wrong["excess"]
    assert right["lost"] == 0


def test_a_seed_gives_the_same_run_again():
    world = {"arrivals": {"rate": 2.0}, "ingresses": 2, "replicas": 2}
    first, again, other = (run(20, seed=seed, **world) for seed in (1, 1, 2))
    assert first | {"decide_ms": None} == again | {"decide_ms": None}
    assert first["latency_mean_s"] != other["latency_mean_s"]


def test_a_pause_delays_answers_and_counts_on_neither_side():
    paused, usual = (
        run(arrivals={"concurrency": 2}, events=[{"at": 10, "pause_seconds": s}]) for s in (200, 0)
    )
    longer = paused["latency_mean_s"] - usual["latency_mean_s"]
    assert longer == pytest.approx(200 * 2 / 30, rel=0.1)
    left = run(events=[{"at": 10, "pause_seconds": 200}], clients={"leave_after_seconds": 60.0})
    assert left["lost"] > 1
    assert left["excess"] < 1.5, "the seconds of the pause are nobody's"


def test_methods_whose_clients_left_in_a_pause_are_chosen_again():
    paused = {"events": [{"at": 10, "pause_seconds": 200}], "clients": {"leave_after_seconds": 60}}
    figures = run(300, **paused)
    assert figures["lost"] > 1
    assert figures["excess_last_quarter"] < 0.1


def test_work_goes_on_after_a_pause():
    async def paused() -> tuple[float, float]:
        machine = Machine(Speeds(BASE, World().clients))
        asyncio.get_running_loop().call_later(0.4, machine.pause, 300.0)
        asyncio.get_running_loop().call_later(100.0, machine.pause, 50.0)
        await machine.work(1.0)
        return machine.time(), machine.worked

    assert run_simulated(paused()) == pytest.approx((351.0, 1.0))


def test_another_tenants_requests_do_not_count():
    others = {"share": 1.0, "cluster": 1, "method": "naive", "acceptance": 1.0}
    figures = run(40, others=others)
    assert figures["requests"] == 40
    assert figures["shares"].get("naive", 0.0) < 0.2
    assert figures["excess"] < 0.2


def test_other_methods_go_on_where_one_fails_or_hangs():
    failing = run(truth=({"method": "eagle3", "fails": 1.0},))
    assert failing["lost"] > 3
    assert failing["latency_p95_s"] is not None, "other methods have answered"
    hanging = run(
        truth=({"method": "eagle3", "hangs": True},),
        clients={"stream": False, "leave_after_seconds": 20.0},
    )
    assert 0 < hanging["lost"] < 15


@pytest.mark.parametrize(
    "fields",
    [
        {"believed": "none", "clients": {"grammar": True}},
        {"believed": [{"method": "eagle3", "only_greedy": True}], "clients": {"temperature": 0.8}},
        {"layout": "shared", "arrivals": {"concurrency": 3}, "load_lag_seconds": 0.0},
        {"clients": {"max_tokens": 1, "prompt_tokens": 1500}, "truth": [{"method": "all"}]},
    ],
)
def test_every_kind_of_world_runs(fields):
    figures = run(12, **fields)
    assert 0.0 <= figures["excess"] < 3.0
    assert sum(figures["shares"].values()) == pytest.approx(1.0)


def test_the_command_serves_a_table_of_its_own(specadapt, tmp_path):
    (tmp_path / "world.yaml").write_text("replicas: 3\nclients: {max_tokens: 8}\n")
    figures = specadapt.json(
        *["simulate", "--world", tmp_path / "world.yaml", "--requests", 10, "--ingresses", 2],
        *["--routing", DEMO, "--replicas", 1],
    )
    assert set(figures["shares"]) <= set(load_table(DEMO).methods)
    contract = "requests excess excess_last_quarter shares requests_until_found latency_mean_s"
    assert figures.keys() >= {*contract.split(), "latency_p95_s", "decide_ms"}


def test_a_folder_of_worlds_gives_one_row_for_each(specadapt, tmp_path):
    for name in ("right", "wrong"):
        fields = "{}" if name == "right" else "truth: [{method: preferred, step: 3.0}]"
        (tmp_path / f"{name}.yaml").write_text(f"{fields}\n")
    right, wrong = specadapt.json("simulate", "--world", tmp_path, "--requests", 8)
    assert (right["world"], wrong["world"]) == ("right", "wrong")
    assert right["excess"] < wrong["excess"]
    assert len(right["requests_until_found"]) == 3
