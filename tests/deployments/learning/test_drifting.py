"""The feedback actor's body when a new kind of prompt arrives, without Ray."""

import asyncio
import itertools
import threading
import time

import numpy as np
import pytest
from observations import observation
from stores import gone

from deployments.api.introspection import table_summary
from deployments.artifacts import served_table
from deployments.learning import feedback as feedback_module
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.loads.board import LoadsLine
from deployments.metrics import Metrics
from router import cluster, decaying_sums, drift
from router.drift import REFERENCE_WINDOWS
from router.table import save_table

WINDOW = 40
COLD = ("", -1)


class Prompts:
    """Prompts near the two centroids of the small table, and near a direction it does not know."""

    def __init__(self, table):
        self._rng = np.random.default_rng(0)
        new = self._rng.standard_normal(table.encoder.dimension)
        self._directions = np.stack([*table.centroids, new / np.linalg.norm(new)])
        self._numbers = itertools.count()

    def vector(self, kind):
        noise = self._rng.standard_normal(self._directions.shape[1])
        vector = 0.7 * self._directions[kind] + 0.7 * noise / np.linalg.norm(noise)
        return vector / np.linalg.norm(vector)

    def answers(self, table, kinds, method="draft_verify", **stats):
        """An answer to a prompt of each kind, routed by the table."""
        made = []
        for kind in kinds:
            vector = self.vector(kind)
            [label] = cluster.assign(table.centroids, vector[None, :])
            answer = observation(f"p{next(self._numbers)}", method, int(label), **stats)
            sent = {"vector": cluster.packed(vector), "fit_id": table.fit_id}
            made.append(answer.model_copy(update=sent))
        return made


@pytest.fixture(autouse=True)
def nothing_is_forgotten(monkeypatch):
    monkeypatch.setattr(drift, "WINDOW", WINDOW)
    monkeypatch.setattr(decaying_sums, "HALF_LIFE", 1e6)


@pytest.fixture
def prompts(config):
    return Prompts(served_table(config))


async def learned(actor, prompts, kinds, **stats):
    """The exchange in which answers to prompts of these kinds are told."""
    table = (await actor.exchange([], COLD)).table
    return await actor.exchange(prompts.answers(table, kinds, **stats), COLD)


async def refitted(actor, known):
    """The table of the next fit, once it is in force."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        table = (await actor.exchange([], COLD)).table
        if table.fit_id != known:
            return table
        await asyncio.sleep(0.02)
    raise AssertionError(f"no refit: {(await actor.exchange([], COLD)).drift}")


async def acquainted(config, prompts):
    """An actor that knows its prompts, and then a new kind of them."""
    actor = Feedback(config)
    await learned(actor, prompts, [0, 1] * (REFERENCE_WINDOWS * WINDOW // 2 + WINDOW))
    return actor


async def test_a_new_kind_of_prompt_gets_its_own_favourite(config, prompts, monkeypatch):
    actor = await acquainted(config, prompts)
    before = (await actor.exchange([], COLD)).table.version
    refits = []
    monkeypatch.setattr(actor._metrics.refits, "inc", lambda: refits.append(1))
    fast = {"output_tokens": 33, "target_steps": 5, "decode_seconds": 0.02}
    slow = {"output_tokens": 33, "target_steps": 21, "decode_seconds": 0.08}
    for _ in range(3):
        await learned(actor, prompts, [2] * 10, method="ngram", **fast)
        await learned(actor, prompts, [2] * 10, method="draft_verify", **slow)
    table = await refitted(actor, "small")
    assert table.version > before
    assert (len(table.assignment), len(refits)) == (3, 1)
    assert table.assignment[2][0] == "ngram"
    assert {cluster.assign(table.centroids, prompts.vector(2)[None, :])[0] for _ in range(20)} == {
        2
    }
    after = await learned(actor, prompts, [0, 1, 2] * 100, method="ngram", **fast)
    assert (after.drift.refits, after.drift.reference) == (1, "fit")
    assert after.table.fit_id == table.fit_id
    summary = table_summary(after.table)
    [refit] = summary["provenance"]["refits"]
    assert (refit["from"], refit["fit_id"], refit["added"]) == ("small", table.fit_id, 1)


async def test_switched_off_drift_is_only_shown(config, prompts, monkeypatch):
    router = config.router.model_copy(update={"refit": False})
    actor = await acquainted(config.model_copy(update={"router": router}), prompts)
    gauge = []
    monkeypatch.setattr(actor._metrics.drift, "set", gauge.append)
    reply = await learned(actor, prompts, [2] * WINDOW)
    assert actor._refitting is None
    assert reply.drift.share_farther > reply.drift.alarm_above
    assert gauge == [reply.drift.share_farther]


async def test_exchanges_go_on_during_a_refit(config, prompts, monkeypatch):
    actor = await acquainted(config, prompts)
    hold, refitting = threading.Event(), feedback_module.Adaptation.refitting

    def held(adaptation):
        make = refitting(adaptation)

        def wait():
            assert hold.wait(120)
            return make()

        return wait

    monkeypatch.setattr(feedback_module.Adaptation, "refitting", held)
    try:
        before = await learned(actor, prompts, [2] * WINDOW)
        during = await asyncio.wait_for(learned(actor, prompts, [2] * 5), 60)
        assert during.acknowledged
        assert during.table.version > before.table.version
        assert during.table.fit_id == "small"
    finally:
        hold.set()
    table = await refitted(actor, "small")
    # what was learned during the refit is there too
    assert table.live.steps[2].sum() == pytest.approx((WINDOW + 5) * 20, rel=1e-3)


async def test_a_refit_survives_a_restart_and_goes_on(config, prompts):
    actor = await acquainted(config, prompts)
    await learned(actor, prompts, [2] * WINDOW)
    table = await refitted(actor, "small")
    successor = Feedback(config)
    reply = await successor.exchange([], COLD)
    again = reply.table
    assert again.fit_id == table.fit_id
    assert again.version > table.version
    assert again.assignment == table.assignment
    np.testing.assert_allclose(again.centroids, table.centroids, atol=1e-6)
    np.testing.assert_allclose(again.live.steps, table.live.steps)
    np.testing.assert_allclose(again.acceptance_steps, table.acceptance_steps)
    assert (reply.drift.refits, reply.drift.reference) == (1, "fit")
    quiet = await learned(successor, prompts, [0, 1, 2] * 60)
    assert quiet.drift.share_farther < quiet.drift.alarm_above


async def test_the_live_reference_survives_a_restart(config, prompts):
    await acquainted(config, prompts)
    successor = Feedback(config)
    await learned(successor, prompts, [2] * WINDOW)
    assert len((await refitted(successor, "small")).assignment) == 3


async def test_late_observations_of_the_fit_before_are_moved(config, prompts):
    actor = await acquainted(config, prompts)
    old = (await actor.exchange([], COLD)).table
    late = prompts.answers(old, [2] * 5)
    bare = observation("bare", "draft_verify", 1)
    foreign = observation("foreign").model_copy(update={"fit_id": "of another application"})
    await learned(actor, prompts, [2] * WINDOW)
    before = await refitted(actor, "small")
    reply = await actor.exchange([*late, bare, foreign], COLD)
    assert reply.acknowledged
    added = reply.table.live.steps - before.live.steps
    method = before.methods.index("draft_verify")
    assert added[2, method, 0] == pytest.approx(5 * 20, rel=1e-3)
    assert np.abs(added[:2]).max() == pytest.approx(0.0, abs=0.1)
    assert (reply.drift.late_moved, reply.drift.late_dropped) == (6, 1)


async def test_a_refit_that_cannot_be_saved_is_not_in_force(config, prompts):
    actor = await acquainted(config, prompts)
    with gone(config):
        await learned(actor, prompts, [2] * WINDOW)
        refit = actor._refitting
        assert refit is not None
        await refit
        assert (await actor.exchange([], COLD)).table.fit_id == "small"
    await learned(actor, prompts, [2] * WINDOW)
    assert (await refitted(actor, "small")).fit_id != "small"


async def test_a_new_table_on_disk_begins_anew(config, prompts, tmp_path):
    actor = await acquainted(config, prompts)
    await learned(actor, prompts, [2] * WINDOW)
    await refitted(actor, "small")
    table = served_table(config)
    save_table(table.model_copy(update={"fit_id": "newer"}), tmp_path / "newer")
    router = config.router.model_copy(update={"routing": tmp_path / "newer"})
    reply = await Feedback(config.model_copy(update={"router": router})).exchange([], COLD)
    assert (reply.table.fit_id, len(reply.table.assignment), reply.drift.refits) == ("newer", 2, 0)


async def test_an_ingress_takes_the_new_fit_over(config, prompts):
    actor = await acquainted(config, prompts)

    async def connect():
        return actor

    link = FeedbackLink(served_table(config), connect, LoadsLine(connect, 60.0), 1e-6, Metrics())
    assert link.drift is None
    await link.exchange()
    await learned(actor, prompts, [2] * WINDOW)
    await refitted(actor, "small")
    for answer in prompts.answers(link.table, [0, 2]):
        link.observe(answer)
    await link.exchange()
    assert (len(link.table.assignment), link.waiting) == (3, 0)
    assert (link.drift.refits, link.drift.late_moved) == (1, 2)
