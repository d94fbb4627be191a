"""Ways through answers, and what steps cost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.harness.boundary import InputError
from ops.simulate.costs import PUBLISHED, MeasuredCosts, PublishedCosts, retimed_by
from ops.simulate.workload import table_workload, traced_workload, walk
from router import evidence, favourites, predict
from router.fit.traced import expected_steps
from tests.ops.simulate.worlds import table_of
from workers.methods import get_method

H100 = PUBLISHED["h100-llama-8b"]


@st.composite
def some_answer(draw):
    """What is kept at each position, and the tokens."""
    tokens = draw(st.integers(1, 8))
    level = st.lists(st.floats(0.0, 1.0), max_size=3).map(lambda x: sorted(x, reverse=True))
    return draw(st.lists(level, min_size=tokens - 1, max_size=tokens - 1)), tokens


@given(some_answer())
def test_walks_take_the_expected_steps(answer):
    kept, tokens = answer
    rng = np.random.default_rng(0)
    steps = [1 + walk(kept, tokens, rng).steps for _ in range(600)]
    assert np.mean(steps) == pytest.approx(expected_steps(kept, tokens), abs=0.3)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(3, 5))
def test_at_temperature_0_the_way_is_the_one_that_decoding_goes(accepted, levels):
    kept = [[1.0] * n + [0.0] * (levels - n) for n in accepted]
    path = walk(kept, len(kept) + 1, np.random.default_rng(0))
    assert path.steps + 1 == expected_steps(kept, len(kept) + 1)
    assert path.width == (1 + levels if kept else 1.0)


def test_another_number_of_positions_is_refused():
    with pytest.raises(ValueError, match="2 positions for an answer of 2 tokens"):
        walk([[1.0], [1.0]], 2, np.random.default_rng(0))


def traced(prompt_id, method, kept, temperature=0.0):
    return {
        "prompt_id": prompt_id,
        "text": prompt_id,
        "prompt": [1, 2, 3],
        "temperature": temperature,
        "method": method,
        "answer": list(range(len(kept) + 1)),
        "kept": kept,
    }


def test_prompts_count_that_all_methods_were_traced_on():
    rows = [
        traced("a", "naive", [[], [], []]),
        traced("a", "ngram", [[1.0, 0.0], [], []]),
        traced("b", "naive", [[]]),
        traced("c", "other", [[]]),
    ]
    found = traced_workload(rows, ["naive", "ngram"], {"a": (4, {"ngram": 0.5})}, 128, seed=0)
    [question] = found.questions
    assert (question.cluster, question.text, question.token_ids) == (4, "a", (1, 2, 3))
    assert question.features.predicted == {"ngram": 0.5}
    [[[naive], [ngram]]] = found.paths
    assert (naive.steps, ngram.steps, ngram.tokens) == (3, 2, 4)
    assert ngram.width == 2.0  # three rows, then one
    assert found.mean_widths() == [1.0, 2.0]
    with pytest.raises(InputError, match="--traces: no prompt was traced under all of naive, odd"):
        traced_workload(rows, ["naive", "odd"], {}, 128, seed=0)


def test_clusters_answer_with_their_acceptance_and_mean_length():
    table = table_of(("naive", "draft"))
    specs = [get_method("naive"), get_method("draft_verify")]
    found = table_workload(table, specs, 0.0, 10_000, seed=0)
    for k, ways in enumerate(found.paths):
        naive, draft = (
            sum(p.steps for p in paths) / sum(p.tokens for p in paths) for paths in ways
        )
        assert naive == pytest.approx(1.0, rel=0.05)
        assert naive / draft == pytest.approx(evidence.acceptance(table)[k, 1, 0], rel=0.05)
        assert {path.width for path in ways[1]} == {5.0}
    tokens = [path.tokens for ways in found.paths for path in ways[0]]
    assert np.mean(tokens) == pytest.approx(predict.expected_output(table, -1), rel=0.4)
    assert found.weights.sum() == pytest.approx(1.0)


@given(st.integers(0, 1), st.integers(1, 40), st.floats(1.0, 3000.0))
def test_measured_steps_are_the_tables(method, batch, context):
    table = table_of()
    counts = [batch * (m == method) for m in range(2)]
    seconds = MeasuredCosts(table).step(counts, batch * context, 0.0)
    assert seconds == pytest.approx(predict.step_seconds(table, method, batch, context))


def test_a_mixed_batch_is_as_slow_as_its_sequences_are_on_the_mean():
    table = table_of()
    costs = MeasuredCosts(table)
    alone = [costs.step([4, 0], 400.0, 0.0), costs.step([0, 4], 400.0, 0.0)]
    assert costs.step([1, 3], 400.0, 0.0) == pytest.approx((alone[0] + 3 * alone[1]) / 4)


def test_published_steps_by_hand():
    costs = PublishedCosts(H100, [get_method("naive"), get_method("ngram"), get_method("eagle3")])
    # 32 sequences of 1,000 tokens: 5.89 ms + 1.26 ms of KV + 0.67 ms of rows + 1.21 ms around it
    assert costs.step([32, 0, 0], 32_000.0, 32.0) == pytest.approx(9.02e-3, rel=1e-3)
    plain, lookup, eagle = (
        costs.step([int(m == i) for i in range(3)], 1000.0, rows)
        for m, rows in enumerate((1.0, 9.0, 5.0))
    )
    assert lookup - plain == pytest.approx(8 * 21.01e-6 + 0.005875 * 6.12e-3, rel=0.02)
    assert eagle - plain == pytest.approx(2.135e-3 + 4 * 21.01e-6, rel=0.01)
    assert costs.step([1, 0, 1], 2000.0, 6.0) == pytest.approx(eagle + 21.01e-6 + 39.3e-6, rel=1e-3)
    assert costs.prefill(2, 1000) == pytest.approx(28.1e-3, rel=1e-3)


def test_nothing_is_made_up_of_methods_that_nothing_was_published_of():
    with pytest.raises(InputError, match="nothing is published of eagle2, medusa"):
        PublishedCosts(H100, [get_method(m) for m in ("naive", "eagle2", "medusa")])


def test_routing_predicts_by_the_published_costs():
    table = table_of(("naive", "ngram"))
    costs = PublishedCosts(H100, [get_method("naive"), get_method("ngram")])
    timed = retimed_by(costs, table, [1.0, 5.0], max_batch=48)
    for m, width in enumerate((1.0, 5.0)):
        for batch in (1, 7, 32, 64):
            counts = [batch * (other == m) for other in range(2)]
            assert predict.step_seconds(timed, m, batch, 700) == pytest.approx(
                costs.step(counts, batch * 700.0, batch * width)
            )
        assert predict.prefill_seconds(timed, m, 300) == pytest.approx(costs.prefill(m, 300))
    assert timed.assignment == favourites.fastest(timed)
