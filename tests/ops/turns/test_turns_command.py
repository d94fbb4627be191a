"""`bench turns`: second turns, and what is remembered of the first."""

import pytest
from conftest_bundle import DEMO

from ops.turns.runs import Turn, figures_of


def test_each_method_has_turns_of_both_kinds(specadapt) -> None:
    figures = specadapt.json(
        *("bench", "turns", "--bundle", DEMO, "--methods", "naive,eagle3"),
        *("--limit", "2", "--max-tokens", "8", "--dtype", "float32"),
    )
    assert set(figures["methods"]) == {"naive", "eagle3"}
    for found in figures["methods"].values():
        assert found["anew"]["turns"] == found["remembered"]["turns"] == 2
        assert found["anew"]["prompt_tokens"] == found["remembered"]["prompt_tokens"] > 16
        assert found["anew"]["median_ms"] > 0.0


def test_figures_are_of_each_method_and_kind() -> None:
    turns = [
        Turn("naive", remembered, 100, seconds)
        for remembered, seconds in [(False, 0.2), (False, 0.4), (False, 0.3), (True, 0.1)]
    ]
    found = figures_of(turns)["naive"]
    assert found["anew"]["median_ms"] == pytest.approx(300.0)
    assert found["remembered"]["turns"] == 1
    assert found["times_sooner"] == pytest.approx(3.0)
