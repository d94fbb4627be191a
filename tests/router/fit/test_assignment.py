from dataclasses import replace

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, METHODS, STEP, make_profile

from router.fit.assign import TableOptions, build_table


def test_a_table_finds_the_made_up_worlds_factors() -> None:
    profile, vectors = make_profile()
    options = TableOptions(clustered_prompts=["elsewhere"])
    table = build_table(profile, vectors, CENTROIDS, ENCODER, options)
    assert [row[0] for row in table.assignment] == ["draft", "ngram"]
    ratio = table.acceptance_tokens[:, :, 0] / table.acceptance_steps[:, :, 0]
    np.testing.assert_allclose(ratio, [[1.0, 2.5, 1.2], [1.0, 2.5, 5.0]])
    alone = [table.step_seconds[i, 0].mean() for i in range(3)]
    np.testing.assert_allclose(alone, [STEP[m] for m in METHODS], rtol=0.02)
    np.testing.assert_allclose(table.prefill_seconds @ [1.0, 20.0], 0.02, rtol=1e-6)
    np.testing.assert_allclose(table.output_tokens, 61.0)
    assert table.speedup[0, 0] == pytest.approx(1.0)
    assert table.speedup_count.tolist() == [[10.0] * 3] * 2
    assert len(table.provenance["prompts"]) == 21


def test_steps_of_a_batch_do_not_count_as_steps_alone() -> None:
    profile, vectors = make_profile()
    busy = [row.model_copy(update={"mean_batch": 3.6}) for row in profile.rows]
    slow = [row.model_copy(update={"decode_seconds": 3.0 * row.decode_seconds}) for row in busy]
    table = build_table(replace(profile, rows=tuple(slow)), vectors, CENTROIDS, ENCODER)
    alone = [table.step_seconds[i, 0].mean() for i in range(3)]
    np.testing.assert_allclose(alone, [STEP[m] for m in METHODS], rtol=0.02)
    in_a_batch = [table.step_seconds[i, table.batch_grid.index(4)].mean() for i in range(3)]
    assert all(b > 2.0 * a for a, b in zip(alone, in_a_batch, strict=True))


def test_the_fit_id_follows_what_was_fitted() -> None:
    profile, vectors = make_profile()
    again = build_table(profile, vectors, CENTROIDS, ENCODER)
    same = build_table(profile, vectors, CENTROIDS, ENCODER)
    moved = build_table(profile, vectors, CENTROIDS * 0.9, ENCODER)
    assert again.fit_id == same.fit_id != moved.fit_id


def test_a_profile_without_the_baseline_is_refused() -> None:
    profile, vectors = make_profile(methods=("draft", "ngram"))
    with pytest.raises(ValueError, match="add naive or vllm_naive"):
        build_table(profile, vectors, CENTROIDS, ENCODER)
