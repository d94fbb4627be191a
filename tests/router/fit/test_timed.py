"""A profile's answers in a table's time."""

from dataclasses import replace

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router.fit.assign import build_table
from router.fit.evaluate import evaluate
from router.fit.profile import Profile, ProfileError
from router.fit.retime import timed_by
from router.table import restrict
from schemas import RoutingTable


def noisy(**meta: object) -> tuple[Profile, np.ndarray]:
    """The same answers on a machine that is three times slower and never the same."""
    profile, vectors = make_profile("held", noise=1.0)
    under = profile.meta.measured_under.model_copy(update={"machine": "busy"})
    changed = profile.meta.model_copy(update={"measured_under": under, **meta})
    slow = tuple(row.model_copy(update={"seconds": 3.0 * row.seconds}) for row in profile.rows)
    return replace(profile, meta=changed, rows=slow), vectors


def test_what_the_answers_are_stays_and_seconds_are_the_tables(table: RoutingTable) -> None:
    profile, vectors = noisy()
    timed = timed_by(table, profile)
    kept = ("prompt_id", "method", "output_tokens", "target_steps", "temperature")
    for before, after in zip(profile.rows, timed.rows, strict=True):
        assert all(getattr(before, name) == getattr(after, name) for name in kept)
        assert after.seconds == pytest.approx(after.prefill_seconds + after.decode_seconds)
    assert timed.meta.measured_under == table.measured_under
    assert timed.meta.provenance["timed_by"] == table.fit_id
    quiet, _ = make_profile("held")
    found, expected = (evaluate(table, made, vectors) for made in (timed, quiet))
    assert found.routed == pytest.approx(expected.routed, rel=0.05)
    assert found.best_single == expected.best_single
    assert found.routed == pytest.approx(found.known_acceptance)


def test_a_table_fitted_on_it_has_the_same_step_times(table: RoutingTable) -> None:
    profile, vectors = noisy()
    again = build_table(timed_by(table, profile), vectors, CENTROIDS, ENCODER)
    np.testing.assert_allclose(again.step_seconds, table.step_seconds, rtol=0.02)
    np.testing.assert_allclose(again.prefill_seconds, table.prefill_seconds, atol=1e-6)
    assert (again.batch_grid, again.context_grid) == (table.batch_grid, table.context_grid)


def test_only_the_tables_methods_are_kept(table: RoutingTable) -> None:
    more, _ = make_profile("held", methods=(*table.methods, "vllm_naive"))
    assert {row.method for row in timed_by(table, more).rows} == set(table.methods)


def test_a_profile_of_something_else_is_refused(table: RoutingTable) -> None:
    other, _ = noisy()
    elsewhere = other.meta.measured_under.model_copy(update={"bundle": "mine:2"})
    with pytest.raises(ProfileError, match="profile is of mine:2, the table of demo:1"):
        timed_by(table, noisy(measured_under=elsewhere)[0])
    hashes = other.meta.settings_hashes | {"ngram": "another"}
    with pytest.raises(ProfileError, match="ngram is not in the profile with the table's settings"):
        timed_by(table, noisy(settings_hashes=hashes)[0])
    with pytest.raises(ProfileError, match="4 at a time"):
        timed_by(table, noisy(concurrency=4)[0])


def test_a_table_without_a_plain_method_judges_nothing(table: RoutingTable) -> None:
    with pytest.raises(ProfileError, match="no plain method"):
        timed_by(restrict(table, ["draft", "ngram"]), noisy()[0])
