"""What changes while the service runs, as far as no Ray is needed for it."""

import pytest
from observations import observation

from deployments.configuration import ConfigError, changed, check_clusters, live_fields
from deployments.learning.feedback import Feedback

FASTER = {"router": {"half_life": 5.0, "exploration": 0.3}}


def test_changes_are_over_the_configuration(config):
    after = changed(config, FASTER | {"http": {"max_answer_seconds": 20}})
    assert (after.router.half_life, after.router.exploration) == (5.0, 0.3)
    assert after.http.max_answer_seconds == 20.0
    rest = {"router": config.router, "http": config.http}
    assert after.model_copy(update=rest) == config
    assert live_fields(after)["router"]["half_life"] == 5.0
    assert changed(config, None) == changed(config, {}) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"engine": {"threads": 4}}, "engine: user_config takes the sections router and http"),
        ({"router": 3}, "router: user_config takes"),
        ({"router": {"encoder": "x"}}, r"router\.encoder: cannot change .* set it in args"),
        ({"router": {"exploration": 2.0}}, r"router\.exploration: .*less than or equal to 0\.5"),
        ({"router": {"weights": {"nobody": 1.0}}}, r"router\.weights: 'nobody' is not served"),
    ],
)
def test_what_cannot_be_changed_is_named(config, changes, said):
    with pytest.raises(ConfigError, match=said):
        changed(config, changes)


def test_a_pinned_cluster_has_to_be_there(config):
    check_clusters(changed(config, {"router": {"pinned_clusters": {1: "naive"}}}), 2)
    with pytest.raises(ConfigError, match="clusters 0 to 1, not 2"):
        check_clusters(changed(config, {"router": {"pinned_clusters": {2: "naive"}}}), 2)


async def test_the_learner_goes_on_under_other_settings_with_what_it_knows(config):
    one, other = Feedback(config), Feedback(config)
    for actor in (one, other):
        await actor.exchange([observation(str(i)) for i in range(20)], ("", -1))
    before = (await one.exchange([], ("", -1))).table
    settings = changed(config, FASTER).router
    after = (await one.exchange([], ("", -1), settings)).table
    assert after.live.steps.tolist() == before.live.steps.tolist()
    more = [observation(f"more {i}") for i in range(20)]
    quick = (await one.exchange(more, ("", -1), settings)).table
    assert quick.live.steps.sum() < before.live.steps.sum() * 2 * 0.8, "it forgets sooner"


async def test_the_newest_change_counts_while_ingresses_differ(config):
    actor, before = Feedback(config), config.router
    after = changed(config, FASTER).router
    told = [("old", before), ("new", after), ("old", before), ("old", before)]
    for ingress, settings in told:
        await actor.exchange([], ("", -1), settings, ingress)
    assert actor._config.router == after
    await actor.exchange([], ("", -1), before, "new")
    assert actor._config.router == before, "a change back counts too"
