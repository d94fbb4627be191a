"""A table that learns of a method later, against one that was made with it."""

from dataclasses import replace

import numpy as np
import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router import favourites
from router.fit.assign import AssignError, TableOptions, build_table
from router.fit.edit import extended
from router.fit.profile import Profile, ProfileError
from router.table import LIVE_METHOD_AXIS, METHOD_AXIS, restrict
from schemas import RoutingTable


@pytest.fixture
def known() -> RoutingTable:
    return build_table(*make_profile(methods=("naive", "ngram")), CENTROIDS, ENCODER)


@pytest.fixture
def whole() -> RoutingTable:
    return build_table(
        *make_profile(), CENTROIDS, ENCODER, TableOptions(methods=("naive", "ngram", "draft"))
    )


def slower(profile: Profile, factor: float) -> Profile:
    """The same answers on a machine that takes so much longer for everything."""
    rows = [
        row.model_copy(
            update={
                name: factor * getattr(row, name)
                for name in ("seconds", "prefill_seconds", "decode_seconds")
            }
        )
        for row in profile.rows
    ]
    steps = [row.model_copy(update={"seconds": factor * row.seconds}) for row in profile.steps]
    return replace(profile, rows=tuple(rows), steps=tuple(steps))


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_it_is_the_table_that_had_been_made_with_it(
    known: RoutingTable, whole: RoutingTable, factor: float
) -> None:
    """On a machine of any speed."""
    profile, vectors = make_profile(methods=("naive", "draft"))
    made = extended(known, slower(profile, factor), vectors)
    assert made.methods == whole.methods
    assert made.assignment == whole.assignment
    assert made.settings_hashes == whole.settings_hashes
    for name in ("acceptance_tokens", "acceptance_steps", "step_seconds", "prefill_seconds"):
        np.testing.assert_allclose(getattr(made, name), getattr(whole, name), rtol=1e-3)
    np.testing.assert_allclose(made.speedup, whole.speedup, rtol=0.01)
    expected = favourites.typical_seconds(whole)
    np.testing.assert_allclose(favourites.typical_seconds(made), expected, rtol=1e-3)


def test_what_is_known_of_the_others_stays(known: RoutingTable) -> None:
    learned = known.with_live(steps=known.live.steps + 5.0, tokens=known.live.tokens + 9.0)
    made = extended(learned, *make_profile(methods=("naive", "draft")))
    for before, after in (
        (learned.acceptance_tokens, made.acceptance_tokens),
        (learned.live.tokens, made.live.tokens),
        (learned.live.steps, made.live.steps),
    ):
        np.testing.assert_array_equal(after[:, : before.shape[1]], before)
    np.testing.assert_array_equal(made.centroids, known.centroids)
    assert made.live.tokens[:, 2].sum() == 0.0
    assert made.fit_id != known.fit_id
    assert made.provenance["extended_by"][0]["methods"] == ["draft"]


def test_methods_that_are_named_get_new_seconds(known: RoutingTable, whole: RoutingTable) -> None:
    """What is known of their acceptance stays, and of everybody else everything."""
    profile, vectors = make_profile(methods=("naive", "ngram"))
    ngram = known.methods.index("ngram")
    wrong = known.step_seconds.copy()
    wrong[ngram] *= 2.0
    ratio = known.live.step_ratio.copy()
    ratio[ngram] = 3.0
    spoilt = known.model_copy(update={"step_seconds": wrong}).with_live(step_ratio=ratio)
    made = extended(spoilt, slower(profile, 2.5), vectors, ["ngram"])
    assert made.methods == known.methods
    for name in ("step_seconds", "prefill_seconds"):
        np.testing.assert_allclose(getattr(made, name), getattr(known, name), rtol=1e-3)
    np.testing.assert_allclose(made.live.step_ratio, known.live.step_ratio, rtol=1e-3)
    np.testing.assert_array_equal(made.acceptance_steps, known.acceptance_steps)
    assert made.assignment == known.assignment
    assert made.fit_id != known.fit_id
    assert made.provenance["extended_by"][0]["timed"] == ["ngram"]
    both, vectors = make_profile()
    together = extended(spoilt, both, vectors, ["ngram", "draft"])
    np.testing.assert_allclose(together.step_seconds, whole.step_seconds, rtol=1e-3)


def test_what_is_extended_otherwise_is_another_fit(known: RoutingTable) -> None:
    """A state that was learned on one must not be taken for the other's."""
    profile, vectors = make_profile()
    ways = (["draft"], ["ngram"], ["ngram", "draft"])
    assert len({extended(known, profile, vectors, way).fit_id for way in ways}) == len(ways)


def test_a_retrained_method_is_known_by_the_profile_alone(known: RoutingTable) -> None:
    learned = known.with_live(tokens=known.live.tokens + 5.0)
    spoilt = learned.model_copy(update={"acceptance_tokens": known.acceptance_tokens * 0.5})
    profile, vectors = make_profile()
    under = profile.meta.measured_under.model_copy(update={"bundle": "demo@retrained"})
    profile = replace(profile, meta=profile.meta.model_copy(update={"measured_under": under}))
    made = extended(spoilt, profile, vectors, retrained=["ngram"])
    new, old = made.methods.index("ngram"), known.methods.index("ngram")
    axis = METHOD_AXIS["acceptance_tokens"]
    theirs = np.take(known.acceptance_tokens, old, axis)
    np.testing.assert_allclose(np.take(made.acceptance_tokens, new, axis), theirs, rtol=1e-3)
    assert not np.take(made.live.tokens, new, LIVE_METHOD_AXIS["tokens"]).any()
    naive = np.take(made.acceptance_tokens, made.methods.index("naive"), axis)
    np.testing.assert_array_equal(naive, np.take(spoilt.acceptance_tokens, 0, axis))
    assert {*made.methods} == {*known.methods}
    assert made.measured_under.bundle == "demo@retrained"
    with pytest.raises(AssignError, match="has to have naive"):
        extended(known, profile, vectors, retrained=["naive"])


def test_batches_that_the_table_does_not_have_count_for_nothing(known: RoutingTable) -> None:
    profile, vectors = make_profile(methods=("naive", "draft"))
    last = profile.steps[-1]
    larger = last.model_copy(update={"batch": 16 * known.batch_grid[-1], "seconds": 9.0})
    odd = replace(profile, steps=(*profile.steps, larger))
    expected = extended(known, profile, vectors).step_seconds
    np.testing.assert_array_equal(extended(known, odd, vectors).step_seconds, expected)


def test_what_cannot_be_added_is_refused(known: RoutingTable) -> None:
    profile, vectors = make_profile(methods=("naive", "draft"))
    with pytest.raises(AssignError, match="has naive already"):
        extended(known, profile, vectors, ["naive"])
    with pytest.raises(AssignError, match="those that are named get new seconds"):
        extended(known, *make_profile(methods=("naive", "ngram")))
    hashes = known.settings_hashes | {"ngram": "other"}
    others = known.model_copy(update={"settings_hashes": hashes})
    with pytest.raises(AssignError, match="ngram was profiled with other settings"):
        extended(others, *make_profile(methods=("naive", "ngram")), ["ngram"])
    with pytest.raises(AssignError, match="eagle not in the profile"):
        extended(known, profile, vectors, ["eagle"])
    with pytest.raises(ProfileError, match="no plain one"):
        extended(known, *make_profile(methods=("draft",)))
    with pytest.raises(AssignError, match="has to have naive"):
        extended(restrict(known, ["ngram"]), profile, vectors)


def test_steps_that_draft_less_in_a_batch_count_as_longer_ones(known: RoutingTable) -> None:
    """Two tokens a step alone, one in a batch of 8: half as good as acceptance promises."""
    profile, vectors = make_profile(methods=("naive", "draft"))
    fewer = {1: 2.0, 4: 2.0, 8: 1.0}
    steps = tuple(
        row.model_copy(update={"tokens": fewer[row.batch]}) if row.method == "draft" else row
        for row in profile.steps
    )
    usual = extended(known, profile, vectors).step_seconds[2]
    made = extended(known, replace(profile, steps=steps), vectors).step_seconds[2]
    np.testing.assert_allclose(made[:2], usual[:2], rtol=0.02)
    np.testing.assert_allclose(made[2], 2.0 * usual[2], rtol=0.02)
