"""A refit: the old clusters stay, a new kind gets its own, and evidence goes with its prompts."""

import json

import numpy as np
import pytest
from prompt_kinds import DIMENSION
from refit_world import ENCODER, NEW, WINDOW, World, recent, refitted, stream
from routing_world import ACCEPTANCE, METHODS, make_profile

from router import cluster, decaying_sums, drift, evidence
from router import refit as refit_module
from router.adaptation import Adaptation
from router.current_fit import Fit
from router.drift import DriftWatch, Reference, share_farther
from router.fit.assign import build_table
from router.learner import Learner
from router.refit import RecentAnswers, refit, successor
from router.table import restrict


@pytest.fixture(autouse=True)
def nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decaying_sums, "HALF_LIFE", 1e9)
    monkeypatch.setattr(drift, "WINDOW", WINDOW)


def test_the_new_kind_gets_a_cluster_of_its_own_and_the_old_keep_theirs() -> None:
    world = World()
    fit = refitted(world, stream(world, world.disk)).fit
    for kind, old in ((0, None), (1, None), (NEW, 2)):
        vectors = world.kinds.mixed(200, [kind])
        labels = cluster.assign(fit.centroids, vectors)
        before = cluster.assign(world.disk.centroids, vectors)
        expected = before if old is None else np.full(200, old)
        assert (labels == expected).mean() > 0.9
    assert fit.fit_id != world.disk.fit_id
    [entry] = fit.history
    assert (entry["from"], entry["fit_id"]) == (world.disk.fit_id, fit.fit_id)
    assert (entry["prompts"], entry["added"]) == (500, 1)
    assert entry["drift"] > 0.3
    assert fit.ancestors == {world.disk.fit_id}


def test_afterwards_the_prompts_are_no_drift_any_more() -> None:
    for seed in range(3):
        world = World(seed)
        fit = refitted(world, stream(world, world.disk)).fit
        watch = DriftWatch(fit.centroids, fit.reference)
        for _ in range(40):
            assert not watch.see(world.kinds.mixed(50, [0, 1, NEW]))
        assert share_farther(np.asarray(watch._ranks)) < 0.15


def test_two_new_kinds_get_two_clusters() -> None:
    world = World(1)
    world.kinds._tightness[3] = 0.75
    both = world.answers(world.disk, [NEW, 3] * 100, "ngram")
    made = refitted(world, [*world.answers(world.disk, [0, 1] * 150, "draft"), *both])
    labels = [cluster.assign(made.fit.centroids, world.kinds.mixed(100, [k])) for k in (NEW, 3)]
    most = [int(np.bincount(each).argmax()) for each in labels]
    assert min(most) >= 2
    assert most[0] != most[1]


def test_too_few_new_prompts_make_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    few = [
        *world.answers(world.disk, [0, 1] * 200, "draft"),
        *world.answers(world.disk, [2] * 10, "draft"),
    ]
    assert refit(world.fit, world.disk, world.fit.reference, recent(few).all()) is None
    monkeypatch.setattr(refit_module, "MOST_ADDED", 2)
    full = recent(stream(world, world.disk)).all()
    assert refit(world.fit, world.disk, world.fit.reference, full) is None


def test_offline_evidence_goes_where_its_prompts_went() -> None:
    world = World()
    made = refitted(world, stream(world, world.disk))
    fit, share = made.fit, made.share
    table = fit.table(world.disk)
    assert len(table.assignment) == 3
    # the old clusters keep what they had, the new one is given next to nothing
    kept = table.acceptance_steps[:2] / world.disk.acceptance_steps[:2].clip(1)
    assert kept[:, :, 0].min() > 0.85
    assert table.acceptance_steps[2].sum() < 0.02 * world.disk.acceptance_steps.sum()
    assert share.sum(axis=0).max() <= 1.0 + 1e-12
    accepted = table.acceptance_tokens[:2, :, 0] / table.acceptance_steps[:2, :, 0]
    of_disk = world.disk.acceptance_tokens[:, :, 0] / world.disk.acceptance_steps[:, :, 0]
    np.testing.assert_allclose(accepted, of_disk, rtol=0.1)
    for name in ("step_seconds", "prefill_seconds", "batch_grid", "methods", "default_method"):
        np.testing.assert_array_equal(getattr(table, name), getattr(world.disk, name))
    assert table.provenance["fit_on_disk"] == world.disk.fit_id
    assert table.provenance["refits"] == list(fit.history)
    assert Reference.read(table.provenance["distances"]).prompts == 500


def test_what_was_learned_on_the_new_prompts_leaves_with_them() -> None:
    """They were answered in an old cluster; n-gram's answers to them say nothing of that one."""
    world = World()
    learner = Learner(world.disk)
    line = world.disk.prefill_seconds[0] @ [1.0, 50.0]
    slow = {"prompt_tokens": 100, "cached_prompt_tokens": 50, "first_token_seconds": 2.0 * line}
    sent = [
        o.model_copy(update={"stats": o.stats.model_copy(update=slow)})
        for o in stream(world, world.disk)
    ]
    learner.observe(sent)
    before = learner.table
    made = refitted(world, sent)
    after = successor(learner, made, world.disk, recent(sent).all()).table
    ngram = METHODS.index("ngram")
    assert after.fit_id == made.fit.fit_id
    assert after.version > before.version
    assert after.live.steps.sum() == pytest.approx(before.live.steps.sum())
    assert after.live.steps[2, ngram, 0] > 80 * 32 / ACCEPTANCE["ngram"][1]
    assert evidence.acceptance(after)[2, ngram, 0] > 4.0
    assert after.live.steps[:, METHODS.index("draft"), 0][2] == 0.0
    np.testing.assert_allclose(after.live.step_ratio, before.live.step_ratio, rtol=0.05)
    assert before.live.prefill_ratio[ngram] == pytest.approx(2.0, rel=0.1)
    np.testing.assert_allclose(after.live.prefill_ratio, before.live.prefill_ratio)


def test_the_new_clusters_favourite_is_what_its_prompts_showed() -> None:
    world = World()
    learner = Learner(world.disk)
    sent = [*stream(world, world.disk), *world.answers(world.disk, [NEW] * 40, "draft")]
    learner.observe(sent)
    made = refitted(world, sent)
    after = successor(learner, made, world.disk, recent(sent).all()).table
    assert after.assignment[:2] == learner.table.assignment
    assert after.assignment[2][0] == "ngram"


def test_a_second_refit_is_still_one_change_of_the_table_on_disk() -> None:
    world = World()
    first = refitted(world, stream(world, world.disk)).fit
    between = first.table(world.disk)
    sent = [
        *world.answers(between, [0, 1, NEW] * 100, "draft"),
        *world.answers(between, [0, 3] * 100, "draft"),
    ]
    made = refit(first, between, first.reference, recent(sent).all())
    assert made is not None
    second, share = made.fit, made.share
    assert second.ancestors == {world.disk.fit_id, first.fit_id}
    table = second.table(world.disk)
    assert len(table.assignment) == 4
    np.testing.assert_allclose(
        table.acceptance_steps, np.tensordot(share, between.acceptance_steps, 1)
    )
    again = Fit.read(json.loads(json.dumps(second.state())), world.disk)
    assert again.fit_id == second.fit_id
    np.testing.assert_allclose(again.centroids, second.centroids, atol=1e-6)
    np.testing.assert_allclose(again.table(world.disk).output_tokens, table.output_tokens)


def test_a_smaller_portfolio_goes_on_under_the_same_fit() -> None:
    world = World()
    adaptation = Adaptation(world.disk)
    assert adaptation.observe(stream(world, world.disk))
    made = adaptation.refitting()()
    assert made is not None
    state = json.loads(json.dumps(adaptation.adopting(made).state()))
    small = Adaptation.restore(restrict(world.disk, METHODS[:2]), state).table
    assert (small.fit_id, small.methods) == (made.fit.fit_id, METHODS[:2])
    assert len(small.assignment) == len(small.centroids) == 3
    with pytest.raises(ValueError, match="belongs to fit"):
        Adaptation.restore(world.disk.model_copy(update={"fit_id": "other"}), state | {"fit": None})


def test_a_saved_fit_of_another_table_is_refused() -> None:
    world = World()
    state = world.fit.state()
    with pytest.raises(ValueError, match="not readable"):
        Fit.read({k: v for k, v in state.items() if k != "share"}, world.disk)
    elsewhere = np.eye(4)[:2], ENCODER.model_copy(update={"dimension": 4})
    other = build_table(*make_profile(), *elsewhere)
    with pytest.raises(ValueError, match="other clusters"):
        Fit.read(state, other)


def test_the_recent_answers_are_bounded_and_each_there_once() -> None:
    world = World()
    sent = world.answers(world.disk, [0] * 12, "draft")
    answers = RecentAnswers(DIMENSION, capacity=10)
    assert all(answers.add(one) is not None for one in sent)
    assert answers.add(sent[-1]) is None
    assert len(answers) == 10
    assert [o.observation_id for o in answers.all()[0]] == [o.observation_id for o in sent[2:]]
    for broken in (None, b"", b"\xff" * 2 * DIMENSION):
        odd = sent[0].model_copy(update={"vector": broken})
        assert answers.add(odd) is None


def test_answers_that_may_not_end_do_not_lengthen_those_expected_of_the_new_kind() -> None:
    world = World()
    expected = []
    for free in (True, False):
        sent = [o.model_copy(update={"free_to_end": free}) for o in stream(world, world.disk)]
        made = refitted(world, sent).fit.table(world.disk)
        expected.append(made.output_tokens[2])
    assert expected == pytest.approx([121.0, 61.0], abs=12.0)


def test_a_refit_keeps_the_favourites_of_the_clusters_on_disk() -> None:
    """Whichever method the profile alone would choose now."""
    world = World()
    other = tuple(("naive",) * 3 for _ in world.disk.assignment)
    world.disk = world.disk.model_copy(update={"assignment": other})
    made = refitted(world, stream(world, world.disk))
    assignment = made.fit.table(world.disk).assignment
    assert assignment[:2] == other
    assert len(assignment) == 3
    assert set(assignment[2]) <= {"draft", "ngram"}
