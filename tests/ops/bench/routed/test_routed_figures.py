"""The arithmetic of `bench routed`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.bench.routed.figures import (
    ROUTED,
    Run,
    decode_speed,
    mean_accepted_tokens,
    over_repeats,
    rates_of,
    same_text,
    summarise,
)
from router.fit.speedup import MIN_TOKENS, harmonic_mean, oracle_rates

METHODS = ("a", "b")

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(2, 4))
TABLES = SHAPES.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(1.0, 100.0)))
"""Rates by prompt, method and repeat."""


def run(arm, prompt, repeat, rate, tokens=20, **more):
    given = {"method": "a" if arm == ROUTED else arm, "reason": "preferred", "domain": "math"}
    given |= {"target_steps": tokens // 2, "text": "same"} | more
    return Run(
        arm=arm, prompt_id=prompt, repeat=repeat, tokens=tokens, seconds=tokens / rate, **given
    )


def table(rates, **more):
    """The runs of rates by prompt, and there by arm and repeat."""
    return [
        run(arm, prompt, repeat, rate, **more)
        for prompt, arms in rates.items()
        for arm, repeats in arms.items()
        for repeat, rate in enumerate(repeats)
    ]


# Prompt p is for a, q for b; in q's first repeat noise turned the two around.
SMALL = {
    "p": {ROUTED: [40.0, 40.0], "a": [40.0, 40.0], "b": [20.0, 20.0]},
    "q": {ROUTED: [10.0, 20.0], "a": [20.0, 10.0], "b": [10.0, 40.0]},
}


def test_tokens_per_second_are_harmonic_means_over_prompts_and_repeats():
    figures = summarise(table(SMALL), METHODS, repeats=2, seed=0)
    assert figures["counted"] == 2
    assert figures["methods"]["a"]["tokens_per_s"] == pytest.approx(4 / (2 / 40 + 1 / 20 + 1 / 10))
    assert figures["methods"]["b"]["tokens_per_s"] == pytest.approx(4 / (2 / 20 + 1 / 10 + 1 / 40))
    assert figures["best_single"] == {"name": "a", "tokens_per_s": pytest.approx(20.0)}
    assert figures["routed"]["tokens_per_s"] == pytest.approx(20.0)
    assert figures["routed_over_best_single"] == pytest.approx(1.0)


def test_the_oracle_is_timed_in_the_repeats_that_did_not_choose():
    pinned = rates_of(table(SMALL), METHODS, 2).pinned
    # q: the first repeat chooses a, timed at 10 in the second; that one chooses b, timed at 10.
    assert oracle_rates(pinned) == pytest.approx([40.0, 10.0])
    figures = summarise(table(SMALL), METHODS, repeats=2, seed=0)
    assert figures["oracle"] == {"tokens_per_s": pytest.approx(16.0)}
    assert figures["routed_over_oracle"] == pytest.approx(20 / 16)
    assert figures["oracle_over_best_single"] == pytest.approx(16 / 20)


def test_with_three_repeats_the_other_two_time_the_oracle():
    pinned = np.asarray([[[10.0, 20.0, 40.0], [20.0, 10.0, 10.0]]])
    # chosen: b, a, a; their seconds a token in the other two repeats
    slow = [1 / 10 + 1 / 10, 1 / 10 + 1 / 40, 1 / 10 + 1 / 20]
    assert oracle_rates(pinned) == pytest.approx([6 / sum(slow)])


def test_one_repeat_has_no_oracle():
    once = {prompt: {arm: r[:1] for arm, r in arms.items()} for prompt, arms in SMALL.items()}
    figures = summarise(table(once), METHODS, repeats=1, seed=0)
    assert figures["oracle"] is None
    assert figures["routed_over_oracle"] is None
    assert figures["oracle_over_best_single_ci95"] is None
    assert figures["routed_over_best_single"] > 0.0


@given(TABLES)
def test_an_oracle_that_meets_the_same_repeat_again_beats_every_single_method(rates):
    again = np.repeat(rates[:, :, :1], 2, axis=2)
    oracle = oracle_rates(again)
    assert oracle == pytest.approx(rates[:, :, 0].max(axis=1))
    singles = [harmonic_mean(again[:, m].ravel()) for m in range(rates.shape[1])]
    assert harmonic_mean(oracle) >= max(singles) * (1.0 - 1e-9)


@given(TABLES)
def test_the_choice_of_one_method_alone_is_worth_nothing(rates):
    alone = rates[:, :1]
    assert oracle_rates(alone) == pytest.approx(over_repeats(alone[:, 0]))


def test_where_all_are_equally_fast_every_ratio_is_one():
    same = {p: {arm: [30.0, 30.0] for arm in (ROUTED, *METHODS)} for p in ("p", "q", "r")}
    figures = summarise(table(same), METHODS, repeats=2, seed=0)
    for ratio in ("routed_over_best_single", "routed_over_oracle", "oracle_over_best_single"):
        assert figures[ratio] == pytest.approx(1.0)
    assert figures["routed_over_best_single_ci95"] == pytest.approx([1.0, 1.0])


def test_a_prompt_counts_where_every_answer_is_long_enough():
    short = run("b", "q", 1, 30.0, tokens=MIN_TOKENS - 1)
    runs = [r for r in table(SMALL) if (r.prompt_id, r.arm, r.repeat) != ("q", "b", 1)]
    for given_up in (runs, [*runs, short]):
        figures = summarise(given_up, METHODS, repeats=2, seed=0)
        assert figures["counted"] == 1
        assert figures["best_single"] == {"name": "a", "tokens_per_s": pytest.approx(40.0)}
    long = run("b", "q", 1, 30.0, tokens=MIN_TOKENS)
    assert summarise([*runs, long], METHODS, repeats=2, seed=0)["counted"] == 2
    with pytest.raises(ValueError, match="all of routed, a, b: nothing counts"):
        summarise([short], METHODS, repeats=2, seed=0)


def test_intervals_repeat_under_one_seed_and_hold_the_ratio():
    rng = np.random.default_rng(0)
    noisy = {
        f"p{i}": {arm: list(rng.uniform(20.0, 40.0, 2)) for arm in (ROUTED, *METHODS)}
        for i in range(30)
    }
    first, again = (summarise(table(noisy), METHODS, repeats=2, seed=1) for _ in range(2))
    assert first == again
    for ratio in ("routed_over_best_single", "oracle_over_best_single"):
        low, high = first[f"{ratio}_ci95"]
        assert low < first[ratio] < high


def test_reasons_and_choices_are_those_of_all_routed_answers():
    runs = [r for r in table(SMALL) if r.arm != ROUTED]
    for prompt, reason, method in [("p", "preferred", "a"), ("q", "exploration", "b")]:
        runs += [run(ROUTED, prompt, i, 30.0, reason=reason, method=method) for i in range(2)]
    runs.append(run(ROUTED, "short", 0, 30.0, tokens=2))
    figures = summarise(runs, METHODS, repeats=2, seed=0)
    assert figures["reasons"] == {"preferred": 3, "exploration": 2}
    assert figures["chosen"] == {"a": 3, "b": 2}


def test_domains_and_loops_are_compared_with_the_same_method():
    some = {"p": SMALL["p"]}
    runs = [*table(some, domain="code"), *table({"q": SMALL["q"]}, domain="edit", looping=True)]
    figures = summarise(runs, METHODS, repeats=2, seed=0)
    assert figures["by_domain"]["code"]["counted"] == 1
    assert figures["by_domain"]["code"]["oracle_over_best_single"] == pytest.approx(1.0)
    # a is slower than b on these, and remains what they are compared with
    assert figures["by_domain"]["edit"]["oracle_over_best_single"] == pytest.approx(10 / (40 / 3))
    assert figures["loop_rate"] == 0.5
    assert figures["without_looping"] == figures["by_domain"]["code"]
    everything = summarise(table(some, looping=True), METHODS, repeats=2, seed=0)
    assert everything["without_looping"]["counted"] == 0
    assert everything["without_looping"]["routed_over_best_single"] is None


def test_tokens_per_step_are_the_mean_of_the_domains():
    runs = [
        run("a", "p", 0, 10.0, tokens=10, target_steps=5),
        run("a", "q", 0, 10.0, tokens=30, target_steps=5),
        run("a", "r", 0, 10.0, tokens=12, target_steps=12, domain="code"),
        run("b", "r", 0, 10.0, tokens=12, target_steps=1, domain="code"),
    ]
    assert mean_accepted_tokens(runs, "a") == pytest.approx((4.0 + 1.0) / 2)


def test_the_same_text_is_that_of_all_answers():
    runs = [run(arm, prompt, 0, 10.0) for prompt in "pq" for arm in (ROUTED, *METHODS)]
    other = run("b", "q", 0, 10.0, text="other")
    assert same_text(runs, answers=3) == 1.0
    assert same_text([*runs[:-1], other], answers=3) == 0.5
    assert same_text(runs[:-1], answers=3) == 1.0, "a prompt that was not answered says nothing"
    assert same_text(runs[:1], answers=3) is None


def test_the_speed_after_the_first_token_leaves_the_prefill_out():
    quick = run("a", "p", 0, rate=10.0, tokens=21, first_text_seconds=1.1)
    slow = run("a", "q", 0, rate=5.0, tokens=21, first_text_seconds=0.2, domain="code")
    assert quick.decode_tokens_per_s == pytest.approx(20.0)
    assert slow.decode_tokens_per_s == pytest.approx(5.0)
    assert decode_speed([quick, slow], "a") == pytest.approx(8.0)
    assert decode_speed([run("a", "p", 0, rate=10.0)], "a") is None
