"""The feedback actor's body and an ingress's line to it, without Ray."""

import asyncio
import threading

import pytest
from asking import until
from observations import observation
from served import service_config
from stores import gone

from deployments.artifacts import served_table
from deployments.learning import feedback as feedback_module
from deployments.learning import link as link_module
from deployments.learning.feedback import Callers, Feedback
from deployments.learning.link import FeedbackLink
from deployments.loads import LoadsLine
from deployments.metrics import Metrics
from router.learner import HALF_LIFE, KEPT
from schemas import TableUpdate


def live_steps(table, method="naive"):
    return table.live.steps[0, table.methods.index(method)]


class TestFeedback:
    async def test_observations_make_a_new_version_that_the_ingress_is_given_once(self, config):
        actor = Feedback(config)
        first = await actor.exchange([], ("", -1))
        known = (first.table.fit_id, first.table.version)
        assert (await actor.exchange([], known)).table is None
        reply = await actor.exchange([observation("a"), observation("b")], known)
        assert reply.acknowledged
        assert reply.table.version > first.table.version
        assert live_steps(first.table.updated(reply.table)) > 0

    async def test_what_was_taken_is_acknowledged_once_it_is_stored(self, config, monkeypatch):
        """Each ingress is told of its own, also of those that another's call stores."""
        actor = Feedback(config)
        await actor.exchange([observation("first")], None, "x")
        monkeypatch.setattr(feedback_module, "STORE_SECONDS", 1e9)
        stored = await actor.exchange([observation("second")], None, "x")
        assert stored.acknowledged == {"second"}
        for ingress in ("x", "y"):
            reply = await actor.exchange([observation(ingress)], None, ingress)
            assert (reply.taken, reply.acknowledged) == (True, frozenset())
        leaving = await actor.exchange([], None, "z", leaving=True)
        assert leaving.acknowledged == frozenset()
        for ingress in ("x", "y"):
            again = await actor.exchange([observation("first")], None, ingress)
            assert again.acknowledged == {ingress, "first"}

    async def test_a_slow_store_is_written_once_for_all_that_wait(self, config, monkeypatch):
        """Else each waiting ingress writes in turn, and the last one's exchange takes too long."""
        actor = Feedback(config)
        await actor.exchange([observation("first")], None)
        save, saves, free = actor._storage.save, [], threading.Event()

        def slow(*state):
            saves.append(1)
            assert free.wait(60)
            save(*state)

        actor._storage.save = slow
        actor._wait = 0.0
        monkeypatch.setattr(feedback_module, "STORE_SECONDS", 1e9)
        waiting = [
            asyncio.create_task(actor.exchange([observation(name)], None, name)) for name in "abc"
        ]
        await until(lambda: saves)
        free.set()
        await asyncio.gather(*waiting)
        assert len(saves) == 1

    async def test_an_ingress_with_the_same_fit_gets_what_has_changed(self, config):
        actor = Feedback(config)
        disk = served_table(config)
        reply = await actor.exchange([observation("a")], (disk.fit_id, disk.version))
        assert isinstance(reply.table, TableUpdate)
        whole = (await actor.exchange([], ("", -1))).table
        updated = disk.updated(reply.table)
        assert (updated.version, updated.assignment) == (whole.version, whole.assignment)
        for name, values in dict(whole.live).items():
            assert (getattr(updated.live, name) == values).all()
        assert (await actor.exchange([observation("b")], None)).table is None

    async def test_what_many_ingresses_send_again_after_the_store_was_away_counts_once(
        self, config
    ):
        """While it is away each sends the same batch again and again, more than 4,096 together."""
        actor = Feedback(config)
        batches = [[observation(f"{i}-{j}", output_tokens=1) for j in range(512)] for i in range(9)]
        with gone(config):
            for batch in batches * 2:
                reply = await actor.exchange(batch, ("", -1))
                assert not reply.acknowledged
        for batch in batches:
            reply = await actor.exchange(batch, ("", -1))
        answers = sum(0.5 ** (i / HALF_LIFE) for i in range(9 * 512))
        assert reply.acknowledged == {o.observation_id for o in batch}
        assert reply.table.version == 9
        assert reply.table.live.answers[0] == pytest.approx(answers)

    def test_nothing_is_kept_for_an_ingress_that_calls_no_more(self, monkeypatch):
        callers = Callers()
        for ingress in ("a", "b"):
            callers.called(ingress)
            callers.new(ingress, [observation(f"of {ingress}")])
        callers.stored(["of a", "of b"])
        assert callers.acknowledged("b") == {"of b"}
        monkeypatch.setattr("deployments.learning.feedback.CALLER_SECONDS", 0.0)
        callers.called("b")
        assert callers.acknowledged("a") == frozenset()

    async def test_what_was_acknowledged_survives_the_actors_death(self, config):
        before = await Feedback(config).exchange([observation(str(i)) for i in range(5)], ("", -1))
        successor = Feedback(config)
        after = await successor.exchange([], ("", -1))
        assert live_steps(after.table) == pytest.approx(live_steps(before.table))
        assert after.table.version >= before.table.version
        assert after.epoch > before.epoch
        repeated = await successor.exchange([observation("0")], ("", -1))
        assert live_steps(repeated.table) == pytest.approx(live_steps(before.table))

    async def test_a_change_of_the_head_discounts_its_method_once(self, tiny_bundle, tmp_path):
        config = service_config(tmp_path, tiny_bundle, ("naive", "eagle3"))
        actor = Feedback(config)
        seen = [observation(str(i), method) for i, method in enumerate(("naive", "eagle3"))]
        before = (await actor.exchange(seen, ("", -1))).table
        for _ in range(2):
            await actor.follow_heads({"eagle3": 2})
            # Another process goes on from the state.
            after = (await actor.exchange([], ("", -1))).table
            assert live_steps(after, "naive") == live_steps(before, "naive")
            assert live_steps(after, "eagle3") == KEPT * live_steps(before, "eagle3")
            actor = Feedback(config)

    async def test_an_older_actor_that_ray_starts_again_leaves_the_live_one_alone(self, config):
        Feedback(config, "old")
        live = Feedback(config, "live")
        assert (await live.exchange([observation("a")], ("", -1))).acknowledged
        again = Feedback(config, "old")
        reply = await again.exchange([observation("b")], ("", -1))
        assert not reply.acknowledged
        assert live_steps(reply.table) > 0.0, "it goes on with what the live one has saved"
        assert (await live.exchange([observation("c")], ("", -1))).acknowledged

    async def test_an_unreadable_state_starts_afresh(self, config):
        actor = Feedback(config)
        actor._storage.save({"seen": []}, frozenset())
        reply = await Feedback(config).exchange([], ("", -1))
        assert live_steps(reply.table) == 0


class TestLink:
    @pytest.fixture
    def line(self, config):
        """A link, and a switch: the actor it reaches, or None while there is none."""

        class Line:
            actor = None

            async def connect(self):
                if self.actor is None:
                    raise ValueError("no such actor")
                return self.actor

        line = Line()
        loads = LoadsLine(line.connect)
        line.link = FeedbackLink(served_table(config), line.connect, loads, Metrics())
        return line

    async def test_what_waited_is_delivered_when_the_actor_is_back(self, line, config):
        line.link.observe(observation("a"))
        table = line.link.table
        await line.link.exchange()
        assert (line.link.connected, line.link.waiting) == (False, 1)
        assert line.link.problem == "the feedback actor does not answer: no such actor"
        assert line.link.table is table
        line.actor = Feedback(config)
        await line.link.exchange()
        assert (line.link.connected, line.link.waiting) == (True, 0)
        assert live_steps(line.link.table) == 20

    async def test_there_is_a_problem_until_the_actor_is_heard_from(self, line, config):
        line.actor = Feedback(config)
        assert line.link.problem is not None
        await line.link.exchange()
        assert line.link.problem is None

    async def test_what_the_actor_has_taken_is_sent_again_to_its_successor_only(
        self, line, config, monkeypatch
    ):
        monkeypatch.setattr(feedback_module, "STORE_SECONDS", 1e9)
        sent = []

        class Recording(Feedback):
            async def exchange(self, observations, *rest):
                sent.append([o.observation_id for o in observations])
                return await super().exchange(observations, *rest)

        line.actor = Recording(config)
        line.link.observe(observation("stored"))
        await line.link.exchange()
        line.actor._wait = 1e9
        for name in ("a", "b"):
            line.link.observe(observation(name))
            await line.link.exchange()
        assert (sent, line.link.waiting) == ([["stored"], ["a"], ["b"]], 2)
        line.actor = line.link._line._remote = Recording(config)
        await line.link.exchange()
        await line.link.exchange()
        assert (sent[3:], line.link.waiting) == ([[], ["a", "b"]], 0)

    async def test_only_so_many_observations_wait(self, line, monkeypatch):
        monkeypatch.setattr(link_module, "_CAPACITY", 3)
        for i in range(5):
            line.link.observe(observation(str(i)))
        assert (line.link.waiting, line.link.dropped) == (3, 2)
