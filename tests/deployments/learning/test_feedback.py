"""The feedback actor's body and an ingress's line to it, without Ray."""

import pytest
from asking import until
from observations import observation

from deployments.artifacts import served_table
from deployments.learning import feedback as feedback_module
from deployments.learning import link as link_module
from deployments.learning.actor import actor_name
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from schemas import LoadReport


def load(replica, **fields):
    base = {"replica": replica, "methods": ("naive",), "running": 0, "waiting": 0}
    return LoadReport.model_validate(
        base | {"outstanding_tokens": 0, "free_slots": 100, "time": 0.0} | fields
    )


def live_steps(table, method="naive"):
    return table.live_steps[0, table.methods.index(method), 0]


class TestFeedback:
    async def test_observations_make_a_new_version_that_the_ingress_is_given_once(self, config):
        actor = Feedback(config)
        first = await actor.exchange([], ("", -1))
        known = (first.table.fit_id, first.table.version)
        assert (await actor.exchange([], known)).table is None
        reply = await actor.exchange([observation("a"), observation("b")], known)
        assert reply.acknowledged
        assert reply.table.version > first.table.version
        assert live_steps(reply.table) > 0

    async def test_an_observation_sent_twice_counts_once(self, config):
        actor = Feedback(config)
        once = await actor.exchange([observation("a")], ("", -1))
        again = await actor.exchange([observation("a")], ("", -1))
        assert again.acknowledged
        assert live_steps(again.table) == live_steps(once.table)

    async def test_what_was_acknowledged_survives_the_actors_death(self, config):
        before = await Feedback(config).exchange([observation(str(i)) for i in range(5)], ("", -1))
        successor = Feedback(config)
        after = await successor.exchange([], ("", -1))
        assert live_steps(after.table) == pytest.approx(live_steps(before.table))
        assert after.table.version >= before.table.version
        assert after.epoch == before.epoch + 1
        repeated = await successor.exchange([observation("0")], ("", -1))
        assert live_steps(repeated.table) == pytest.approx(live_steps(before.table))

    async def test_a_superseded_owner_acknowledges_nothing(self, config):
        old, new = Feedback(config), Feedback(config)
        assert not (await old.exchange([observation("a")], ("", -1))).acknowledged
        assert (await new.exchange([observation("b")], ("", -1))).acknowledged

    async def test_an_older_actor_that_ray_starts_again_leaves_the_live_one_alone(self, config):
        Feedback(config, "old")
        live = Feedback(config, "live")
        assert (await live.exchange([observation("a")], ("", -1))).acknowledged
        again = Feedback(config, "old")
        reply = await again.exchange([observation("b")], ("", -1))
        assert not reply.acknowledged
        assert live_steps(reply.table) > 0.0, "it goes on with what the live one has saved"
        assert (await live.exchange([observation("c")], ("", -1))).acknowledged

    async def test_a_store_that_fails_leaves_the_observations_with_the_ingress(self, config):
        actor = Feedback(config)

        class Full:
            epoch = 1

            def save(self, _):
                raise OSError("no space left")

        good, actor._store = actor._store, Full()
        assert not (await actor.exchange([observation("a")], ("", -1))).acknowledged
        actor._store = good
        assert (await actor.exchange([observation("a")], ("", -1))).acknowledged
        again = await Feedback(config).exchange([], ("", -1))
        assert live_steps(again.table) == 20

    async def test_an_unreadable_state_starts_afresh(self, config):
        actor = Feedback(config)
        actor._store.save({"nonsense": True})
        reply = await Feedback(config).exchange([], ("", -1))
        assert live_steps(reply.table) == 0

    async def test_load_reports_expire(self, config, monkeypatch):
        actor = Feedback(config)
        now = feedback_module.time.monotonic()
        monkeypatch.setattr(feedback_module.time, "monotonic", lambda: now)
        await actor.report(load("a", running=1))
        await actor.report(load("a", running=2))
        assert [r.running for r in (await actor.exchange([], ("", 0))).loads] == [2]
        now += 60
        assert (await actor.exchange([], ("", 0))).loads == ()

    def test_a_changed_configuration_has_an_actor_of_its_own(self, config):
        other = config.model_copy(update={"layout": "shared"})
        assert actor_name("app", config) == actor_name("app", config.model_copy())
        assert len({actor_name("app", config), actor_name("app", other)}) == 2
        assert actor_name("app", config) != actor_name("app2", config)


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
        line.link = FeedbackLink(served_table(config), line.connect, 1e-6, 60.0, Metrics())
        return line

    async def test_without_the_actor_it_goes_on_with_its_table(self, line):
        table = line.link.table
        line.link.observe(observation("a"))
        await line.link.exchange()
        assert (line.link.connected, line.link.waiting) == (False, 1)
        assert line.link.table is table

    async def test_what_waited_is_delivered_when_the_actor_is_back(self, line, config):
        line.link.observe(observation("a"))
        await line.link.exchange()
        line.actor = Feedback(config)
        await line.link.exchange()
        assert (line.link.connected, line.link.waiting) == (True, 0)
        assert live_steps(line.link.table) == 20

    async def test_unacknowledged_observations_stay(self, line, config):
        line.actor = Feedback(config)
        Feedback(config)  # supersedes it
        line.link.observe(observation("a"))
        await line.link.exchange()
        assert line.link.waiting == 1

    async def test_what_waits_at_the_end_of_the_exchanging_is_sent(self, line, config):
        line.actor = Feedback(config)
        async with line.link.exchanging():
            await until(lambda: line.link.connected)
            line.link.observe(observation("a"))
            assert line.link.waiting == 1
        assert (line.link.connected, line.link.waiting) == (True, 0)

    async def test_a_young_actor_does_not_hide_replicas_known_before(self, line, config):
        rare = config.feedback.model_copy(update={"load_report_seconds": 3600.0})
        config = config.model_copy(update={"feedback": rare})
        line.actor = Feedback(config)
        await line.actor.report(load("a"))
        await line.actor.report(load("b"))
        await line.link.exchange()
        line.actor = Feedback(config)
        line.link._actor = None
        await line.actor.report(load("b", running=3))
        await line.link.exchange()
        assert {r.replica: r.running for r in line.link.loads} == {"a": 0, "b": 3}
        line.actor._born -= 24 * 3600.0
        await line.link.exchange()
        assert {r.replica for r in line.link.loads} == {"b"}

    async def test_only_so_many_observations_wait(self, line, monkeypatch):
        monkeypatch.setattr(link_module, "_CAPACITY", 3)
        for i in range(5):
            line.link.observe(observation(str(i)))
        assert (line.link.waiting, line.link.dropped) == (3, 2)
