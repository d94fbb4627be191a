"""`specadapt bench simulated`: which load tests there are, what is judged, and kept rounds."""

import json

import pytest

from ops.harness.boundary import InputError
from ops.simulate.check_rounds import LoadTest, answered, planned
from ops.simulate.served import rounds_compared

FIGURES = ("tokens_per_s", "latency_mean_s", "latency_p95_s")


def test_a_test_halfway_between_the_highest_rates_calibrates_for_each_kind():
    tests = planned("ngram", [2.0, 1.0, 4.0], [0.5], seconds=30.0, seed=7)
    assert [(one.method, one.rate, one.requests, one.calibrates) for one in tests] == [
        *[(None, 2.0, 60, False), (None, 1.0, 30, False), (None, 4.0, 120, False)],
        *[(None, 3.0, 90, True), ("ngram", 0.5, 15, False), ("ngram", 0.5, 15, True)],
    ]
    assert len({one.seed for one in tests}) == len(tests), "each asks other prompts"
    assert len({one.name for one in tests}) == len(tests)


@pytest.mark.parametrize(("late", "near"), [(1.14, True), (1.16, False), (0.86, True)])
def test_medians_of_rounds_are_judged(late, near):
    served = [dict.fromkeys(FIGURES, value) for value in (2.0, 1.0, 9.0)]
    simulated = [
        {"tokens_per_s": value, "latency_mean_s": value, "latency_p95_s": value * late}
        for value in (2.0, 0.1, 3.0)
    ]
    found = rounds_compared(served, simulated)
    assert found["within"] is near
    p95 = found["figures"]["latency_p95_s"]
    assert p95["ratio"] == pytest.approx(late)
    assert (p95["served"], p95["simulated"]) == (2.0, 2.0 * late)
    assert p95["spread"] == 9.0
    assert p95["ratios"] == pytest.approx([late, 0.1 * late, late / 3.0])


def test_a_kept_round_is_not_asked_again_and_has_to_be_of_these_tests(tmp_path):
    tests = [LoadTest(None, 1.0, 4, seed=0), LoadTest("ngram", 1.0, 4, seed=1, calibrates=True)]
    lines = [{"test": vars(test), "requests": 4} for test in reversed(tests)]
    kept = tmp_path / "0.json"
    kept.write_text(json.dumps(lines))
    found = answered(None, tests, 0, kept, print)
    assert [test for test, _ in found] == tests[::-1]
    with pytest.raises(InputError, match="holds other load tests"):
        answered(None, tests[:1], 0, kept, print)
    kept.write_text("[{}]")
    with pytest.raises(InputError, match="was not written by this command"):
        answered(None, tests, 0, kept, print)


@pytest.mark.slow
@pytest.mark.usefixtures("fitted")
def test_a_service_is_held_against_its_simulation(specadapt, world, tmp_path):
    from tests.ops.conftest import two_subjects

    folder, _, _ = world
    asked = two_subjects(tmp_path, "eleven", 6)
    common = ["--config", folder / "config.yaml", "--prompts", asked, "--max-tokens", 10]
    specadapt.json("trace", "--out", tmp_path / "traces", *common)
    check = [
        *["bench", "simulated", *common, "--traces", tmp_path / "traces"],
        *["--routing", folder / "routing", "--rates", "2,4", "--method", "ngram"],
        *["--method-rates", "3", "--seconds", 4, "--repeats", 2, "--tests", tmp_path / "loads"],
    ]
    found = specadapt.json(*check)
    assert found["judged"] == 3
    assert len(found["loads"]) == 5
    for one in found["loads"].values():
        assert one["figures"]["latency_mean_s"]["served"] > 0.0
    assert sorted(file.name for file in (tmp_path / "loads").iterdir()) == ["0.json", "1.json"]
    again = specadapt.json(*check)
    assert again["loads"] == found["loads"], "kept load tests are judged alike"
