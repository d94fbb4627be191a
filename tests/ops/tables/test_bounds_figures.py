"""The arithmetic of `bench bounds` on made-up answers."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.tables.bounds_costs import StepSeconds
from ops.tables.bounds_figures import Answer, bounds, speedups_of
from ops.tables.bounds_reached import reached

LEVELS = {"copy": 4, "draft": 4}
SECONDS = StepSeconds(
    whole={"naive": 1.0, "copy": 1.1, "draft": 1.4},
    drafting={"naive": 0.0, "copy": 0.0, "draft": 0.3},
    rows=np.asarray([1.0, 5.0]),
    forwards=np.asarray([1.0, 1.1]),
)
TOKENS = 12


def answer(name, copy, draft):
    """Of a drafter so many tokens are kept everywhere; the domain is the name's first letter."""
    kept = {"copy": [copy] * TOKENS, "draft": [draft] * TOKENS}
    return Answer(name, name[0], kept)


def found(answers):
    return bounds(answers, LEVELS, speedups_of(answers, LEVELS, SECONDS), seed=0)


def test_the_best_of_a_group_is_one_drafter_for_all_of_it():
    answers = [answer("a1", 3, 0), answer("a2", 3, 0), answer("b1", 0, 3), answer("b2", 3, 2)]
    figures = found(answers)
    assert figures["best_single"]["speedup"] < figures["best_of_domain"] < figures["best_of_prompt"]
    assert figures["by_domain"]["a"]["best_of_domain"] == figures["by_domain"]["a"]["copy"]
    assert figures["by_domain"]["b"]["best_of_domain"] == figures["by_domain"]["b"]["draft"]


def test_where_no_drafter_pays_the_best_of_a_group_is_none():
    figures = found([answer("a1", 0, 0)])
    assert figures["by_domain"]["a"]["best_of_domain"] == 1.0
    assert figures["best_single"]["speedup"] < 1.0


def decoded(folder, methods, ids):
    """A file of `bench decode` with these speedups by prompt."""
    file = folder / "decoded.json"
    named = {name: {"decode_speedup_by_prompt": own} for name, own in methods.items()}
    file.write_text(json.dumps({"methods": named, "settings": {"prompts": {"ids": ids}}}))
    return file


def test_what_decoding_reaches(tmp_path):
    answers = [answer("a1", 3, 0), answer("a2", 1, 0), answer("b1", 3, 2)]
    ids = [a.prompt_id for a in answers]
    speedups = speedups_of(answers, LEVELS, SECONDS)
    best = dict(zip(ids, speedups["oracle_combine"].tolist(), strict=True))
    half = {name: value / 2 for name, value in best.items()}
    file = decoded(tmp_path, {"naive": dict.fromkeys(ids, 1.0), "copy": half}, ids)
    own = reached(file, answers, speedups, set(ids), seed=0)["copy"]
    assert own["oracle_combine"] == pytest.approx(0.5)
    assert own["ci95"]["oracle_combine"] == pytest.approx([0.5, 0.5])
    means = bounds(answers, LEVELS, speedups, seed=0)
    assert own["speedup"] == pytest.approx(means["oracle_combine"] / 2)
    assert own["best_schedule"] == pytest.approx(own["speedup"] / means["best_schedule"])
    low, high = own["ci95"]["speedup"]
    assert low < own["speedup"] < high
    assert {d: found["answers"] for d, found in own["by_domain"].items()} == {"a": 2, "b": 1}
    assert own["by_domain"]["b"]["speedup"] == pytest.approx(half["b1"])


def test_an_answer_without_a_plain_rate_has_no_share(tmp_path):
    """Plain answers may be too short to have a rate where a lossy method's are not."""
    answers = [answer("a1", 3, 0), answer("b1", 0, 3)]
    speedups = speedups_of(answers, LEVELS, SECONDS)
    methods = {"naive": {"a1": 1.0}, "copy": {"a1": 2.0}, "none": {}}
    found = reached(decoded(tmp_path, methods, ["a1"]), answers, speedups, {"a1"}, seed=0)
    assert list(found) == ["naive", "copy"]
    assert list(found["copy"]["by_domain"]) == ["a"]
    assert found["copy"]["speedup"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "was not written by `bench decode"),
        ('{"methods": {"naive": {}}, "settings": {"prompts": {"ids": ["x"]}}}', "other prompts"),
        ('{"methods": {}, "settings": {"prompts": {"ids": ["a1"]}}}', "no naive"),
        (
            '{"methods": {"naive": {}}, "settings": {"prompts": {"ids": ["a1"]}}}',
            "methods.naive.decode_speedup_by_prompt is missing",
        ),
    ],
)
def test_what_was_not_decoded_so_is_refused(tmp_path, text, says):
    file = tmp_path / "decoded.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=says):
        reached(file, [answer("a1", 3, 0)], {}, {"a1"}, seed=0)


KEPT = st.tuples(st.integers(0, 4), st.integers(0, 4))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.lists(KEPT, min_size=2, max_size=6))
def test_bounds_are_in_order(kept):
    answers = [answer(f"{'ab'[i % 2]}{i}", *both) for i, both in enumerate(kept)]
    figures = found(answers)
    single, eps = figures["best_single"]["speedup"], 1e-9
    assert single <= figures["best_of_domain"] + eps
    assert figures["best_of_prompt"] >= single - eps
    assert figures["best_schedule"] >= figures["oracle_combine"] - eps
    assert figures["best_schedule"] >= max(figures["oracle_length"].values()) - eps
    assert list(figures["combined"]) == ["copy + draft"]
    assert figures["combined"]["copy + draft"]["speedup"] == figures["oracle_combine"]
    for name, (low, high) in figures["ci95"].items():
        assert low - eps <= high, name
