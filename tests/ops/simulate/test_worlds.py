"""What a world says: factors, events, and files that are refused. Nothing is served here."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from ops.simulate.speeds import Speeds, true_speeds
from ops.simulate.world import BASE_FILE, Base, Clients, World, read_world

WORLDS = Path(__file__).parents[3].parent / "shared" / "cases" / "worlds"


@pytest.fixture(scope="module")
def base() -> Base:
    return read_world(None)[1]


@pytest.fixture(scope="module")
def speeds(base) -> Speeds:
    return Speeds(base, Clients())


def under(base: Base, *factors: dict) -> Speeds:
    return true_speeds(World.model_validate({"truth": factors}), base, 0)


@pytest.mark.skipif(not WORLDS.is_dir(), reason="needs ../shared")
def test_the_base_is_the_frozen_one_and_the_shared_worlds_can_be_read(base):
    assert BASE_FILE.read_text() == (WORLDS / "base.yaml").read_text()
    for file in set(WORLDS.glob("*.yaml")) - {WORLDS / "base.yaml"}:
        assert read_world(file)[1] == base


def test_a_factor_changes_what_it_names_and_nothing_else(base, speeds):
    changed = under(
        base,
        {"method": "suffix", "step": 2.0, "prefill": 3.0},
        {"method": "suffix", "acceptance": 0.5, "clusters": [2, 5]},
    )
    assert changed.step({"suffix": 1}) == pytest.approx(2.0 * speeds.step({"suffix": 1}))
    assert changed.prefill("suffix", 120) == pytest.approx(3.0 * speeds.prefill("suffix", 120))
    before, after = speeds.methods["suffix"].acceptance, changed.methods["suffix"].acceptance
    assert after[5] == pytest.approx(before[5] / 2.0)
    assert after[2] == 1.0, "never below 1"
    others = np.delete(np.arange(20), [2, 5])
    assert (after[others] == before[others]).all()
    for name in speeds.methods.keys() - {"suffix"}:
        assert changed.mean_request(name) == speeds.mean_request(name)
    accepting = under(base, {"method": "all", "acceptance": 3.0}).methods
    assert (accepting["naive"].acceptance == 1.0).all()
    assert (accepting["suffix"].acceptance > 3.0).all()


@pytest.mark.parametrize("factor", [2.0, 0.5])
@pytest.mark.parametrize("later", [{"method": "all", "step": 3.0}, {"method": "suffix", "step": 9}])
def test_best_by_is_exact_whatever_else_is_so(base, factor, later):
    changed = under(base, {"method": "eagle3", "best_by": factor}, later)
    others = [changed.mean_request(name) for name in base.methods if name != "eagle3"]
    assert changed.mean_request("eagle3") == pytest.approx(min(others) / factor)


def test_an_event_replaces_factors_of_the_same_method(base, speeds):
    best = speeds.best
    truth = [{"method": "preferred", "step": 3.0}, {"method": "naive", "step": 5.0}]
    event = {"at": 7, "truth": [{"method": best, "step": 2.0}]}
    world = World.model_validate({"truth": truth, "events": [event]})
    before, after = (true_speeds(world, base, number) for number in (6, 7))
    assert before.step({best: 1}) == pytest.approx(3.0 * speeds.step({best: 1}))
    assert after.step({best: 1}) == pytest.approx(2.0 * speeds.step({best: 1}))
    assert after.step({"naive": 1}) == pytest.approx(5.0 * speeds.step({"naive": 1}))


def test_temperature_lowers_acceptance_linearly_up_to_a_high_one(base):
    cold, warm, high, hot = (
        Speeds(base, Clients(temperature=t)).methods["eagle3"].acceptance
        for t in (0.0, 0.3, 0.6, 1.5)
    )
    assert warm == pytest.approx((cold + high) / 2.0)
    assert (high == hot).all()
    assert high == pytest.approx(base.acceptance.high["eagle3"])


def test_a_step_of_several_methods_is_their_mean(speeds):
    both = (speeds.step({"naive": 2}) + speeds.step({"eagle3": 2})) / 2.0
    assert speeds.step({"naive": 1, "eagle3": 1}) == pytest.approx(both)


@pytest.mark.parametrize("wrong", [{"fails": 0.6}, {"hangs": True}])
def test_a_method_that_fails_is_not_the_best(base, speeds, wrong):
    world = {"truth": [{"method": "preferred", **wrong}], "clients": {"leave_after_seconds": 9}}
    assert true_speeds(World.model_validate(world), base, 0).best != speeds.best


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"truths": []}, "truths: unknown field"),
        ({"truth": [{"method": "suffix", "stepp": 2}]}, "truth.0.stepp: unknown field"),
        (
            {"truth": [{"method": "eagle9"}]},
            "truth.0.method: eagle9 is not in the base; choose from",
        ),
        ({"events": [{"at": 3, "truth": [{"method": "x"}]}]}, "events.0.truth.0.method: x is not"),
        ({"truth": [{"method": "suffix", "step": "fast"}]}, "truth.0.step: "),
        ({"truth": [{"method": "suffix", "clusters": [20]}]}, "truth.0.clusters.0: 20 is not"),
        ({"believed": "nothing"}, "believed: Input should be a valid tuple"),
        ({"clients": {"stream": True, "max_tokens": True}}, "clients.max_tokens: "),
        ({"arrivals": {"concurrency": 2, "rate": 1.0}}, "either concurrency or rate"),
        ({"truth": [{"method": "all", "hangs": True}]}, "set clients.leave_after_seconds"),
        ({"truth": [{"method": "all", "best_by": 2.0}]}, "best_by: all methods cannot be"),
        ({"truth": [{"method": "all", "fails": 1.0}]}, "truth: no method ever answers"),
        (
            {
                "truth": [{"method": "eagle3", "best_by": 2.0}],
                "clients": {"prompt_tokens": 1500, "max_tokens": 16},
            },
            "eagle3 cannot be 2 times better",
        ),
        ({"base": "elsewhere.yaml"}, "elsewhere.yaml: No such file"),
    ],
)
def test_a_wrong_world_is_refused_in_one_line(specadapt, tmp_path, fields, said):
    file = tmp_path / "world.yaml"
    file.write_text(yaml.safe_dump(fields))
    assert said in specadapt.refusal("simulate", "--world", file)


def test_a_missing_world_is_refused(specadapt, tmp_path):
    assert "no.yaml: No such file" in specadapt.refusal("simulate", "--world", tmp_path / "no.yaml")


def test_an_empty_file_is_the_world_in_which_the_table_is_right(tmp_path):
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_world(tmp_path / "empty.yaml") == read_world(None)
