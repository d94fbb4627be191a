import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.fit.assign import Sample, grid

BATCHES, CONTEXTS = (1, 2, 4, 8), (64, 256, 1024)


def test_measured_cells_keep_their_means() -> None:
    samples = [Sample(0, b, c, 0.001 * (1 + b) + 1e-6 * c, 10.0) for b in BATCHES for c in CONTEXTS]
    seconds, counts = grid(samples, 1, BATCHES, CONTEXTS)
    assert (counts == 10.0).all()
    expected = [[0.001 * (1 + b) + 1e-6 * c for c in CONTEXTS] for b in BATCHES]
    np.testing.assert_allclose(seconds[0], expected)


def test_holes_follow_the_methods_own_cost() -> None:
    def cost(b: float, c: float) -> float:
        return 0.002 + 0.001 * b + 2e-6 * c

    measured = [(1, 64), (8, 64), (1, 1024), (8, 1024)]
    samples = [Sample(0, b, c, cost(b, c), 10.0) for b, c in measured]
    seconds, counts = grid(samples, 1, BATCHES, CONTEXTS)
    assert counts[0, 1, 1] == 0.0
    assert seconds[0, 2, 1] == pytest.approx(cost(4, 256), rel=0.02)


def test_a_method_without_samples_is_named() -> None:
    with pytest.raises(ValueError, match="method 1 of 2"):
        grid([Sample(0, 1, 64, 0.01, 1.0)], 2, BATCHES, CONTEXTS)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.builds(
            Sample,
            method=st.just(0),
            batch=st.sampled_from(BATCHES),
            context=st.floats(16, 4000),
            seconds=st.floats(1e-4, 1.0),
            count=st.floats(1, 1000),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_seconds_never_fall_along_the_grid(samples: list[Sample]) -> None:
    seconds, _ = grid(samples, 1, BATCHES, CONTEXTS)
    assert (seconds > 0.0).all()
    assert (np.diff(seconds, axis=1) >= 0.0).all()
    assert (np.diff(seconds, axis=2) >= 0.0).all()
