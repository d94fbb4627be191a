import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.fit.speedup import baseline_of, harmonic_mean, paired_bootstrap_ci


@pytest.fixture(autouse=True, scope="module")
def few_resamples():
    with pytest.MonkeyPatch.context() as patch:
        yield patch.setattr("router.fit.speedup.RESAMPLES", 200)


def test_naive_is_the_baseline_and_without_it_vllm_naive() -> None:
    assert baseline_of(["vllm_naive", "ngram", "naive"]) == "naive"
    assert baseline_of(["vllm_ngram", "vllm_naive"]) == "vllm_naive"
    with pytest.raises(ValueError, match=r"vllm_ngram have no plain one.*add naive or vllm_naive"):
        baseline_of(["vllm_ngram"])


@pytest.mark.parametrize("values", [[], [1.0, 0.0], [-1.0]])
def test_a_harmonic_mean_of_nothing_or_zero_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        harmonic_mean(values)


@settings(deadline=None)
@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=30), st.floats(0.5, 3.0))
def test_a_constant_factor_has_no_spread(values: list[float], factor: float) -> None:
    array = np.asarray(values)
    low, high = paired_bootstrap_ci(array * factor, array, seed=1)
    assert low == pytest.approx(factor)
    assert high == pytest.approx(factor)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(100):
        baseline = np.exp(0.3 * rng.standard_normal(60))
        # 1/values has the mean 1/(1.2 baseline) exactly, so the true ratio is 1.2.
        noise = rng.uniform(0.8, 1.2, 60)
        low, high = paired_bootstrap_ci(1.2 * baseline / noise, baseline, trial)
        covered += low <= 1.2 <= high
    assert 0.88 <= covered / 100 <= 0.99
