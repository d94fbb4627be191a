import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bench.stats import (
    Divergence,
    Run,
    domain_mean,
    domain_mean_ci,
    first_difference,
    match_figures,
    mean_accepted_tokens,
    paired_speedups,
    rates,
    summarise,
)


def run(prompt="p", domain="d", repeat=0, tokens=10, seconds=1.0, **more):
    return Run(prompt, domain, repeat, tokens, seconds, **more)


def test_rates_are_medians_over_repeats():
    runs = [run(repeat=r, seconds=s) for r, s in enumerate([1.0, 2.0, 10.0])]
    assert rates(runs) == {"d": [5.0]}


def test_short_answers_do_not_count_for_speed():
    runs = [run(prompt="short", tokens=7), run(prompt="long", tokens=8)]
    assert rates(runs) == {"d": [8.0]}
    assert paired_speedups(runs, runs) == {"d": [1.0]}


def test_speedups_pair_within_a_repeat():
    # The machine is half as fast in the second repeat: paired ratios do not notice.
    naive = [run(repeat=0, seconds=2.0), run(repeat=1, seconds=4.0)]
    fast = [run(repeat=0, seconds=1.0), run(repeat=1, seconds=2.0)]
    assert paired_speedups(fast, naive) == {"d": [2.0]}


def test_a_prompt_missing_in_the_baseline_has_no_speedup():
    assert paired_speedups([run(prompt="x")], [run(prompt="y")]) == {}


def test_domains_weigh_the_same_however_many_prompts_they_have():
    assert domain_mean({"a": [1.0], "b": [3.0, 3.0, 3.0]}) == pytest.approx(1.5)
    assert domain_mean({}) is None


def test_mat_is_tokens_over_steps_per_domain():
    runs = [run(tokens=10, target_steps=5), run(prompt="q", tokens=20, target_steps=5)]
    assert mean_accepted_tokens(runs) == {"d": 3.0}


def test_decode_only_rates_leave_the_prefill_out():
    assert run(tokens=11, seconds=3.0, first_token_seconds=1.0).decode_tokens_per_s == 5.0
    assert run().decode_tokens_per_s is None


def test_an_interval_of_equal_ratios_is_a_point_and_of_others_holds_the_mean():
    assert domain_mean_ci({"a": [2.0, 2.0], "b": [2.0]}, seed=0) == pytest.approx((2.0, 2.0))
    assert domain_mean_ci({"a": []}, seed=0) is None
    ratios = {"a": [1.0, 1.5, 2.0, 3.0] * 5, "b": [0.9, 1.1] * 5}
    low, high = domain_mean_ci(ratios, seed=0)
    assert 1.0 < low < domain_mean(ratios) < high < 1.6


@settings(deadline=None)
@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_first_difference_is_where_answers_part(a, b):
    position = first_difference(a, b)
    if a == b:
        assert position is None
    else:
        assert a[:position] == b[:position]
        assert a[position : position + 1] != b[position : position + 1]


def test_near_ties_are_set_apart():
    divergences = [Divergence("a", 3, 1e-5, True), Divergence("b", 4, 0.5, False)]
    figures = match_figures(10, divergences)
    assert figures["match_rate"] == pytest.approx(8 / 9)
    assert figures["near_tie_rate"] == 0.1
    assert figures["divergences"][0] == {
        "prompt_id": "a",
        "position": 3,
        "gap": 1e-5,
        "near_tie": True,
    }


def test_a_summary_compares_with_all_others():
    """Domains are compared with the baseline, and prompts that looped are counted."""
    naive = [run(f"{d}{i}", d, seconds=2.0, target_steps=10) for d in "ab" for i in "12"]
    fast = [
        run(f"{d}{i}", d, seconds=1.0, target_steps=5, looping=d + i == "a1")
        for d in "ab"
        for i in "12"
    ]
    figures = summarise(fast, {"naive": naive, "hf": fast}, "naive")
    assert figures["over"]["naive"]["speedup"] == pytest.approx(2.0)
    assert figures["over"]["hf"]["ci95"] == pytest.approx((1.0, 1.0))
    assert (figures["mat"], figures["prompts"], figures["loop_rate"]) == (2.0, 4, 0.25)
    assert figures["by_domain"]["a"] == {
        "tokens_per_s": pytest.approx(10.0),
        "speedup": pytest.approx(2.0),
        "mat": 2.0,
        "prompts": 2,
    }
