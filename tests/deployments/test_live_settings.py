"""What changes while the service runs, as far as no Ray is needed for it."""

import pytest

from deployments.configuration import ConfigError, changed, check_clusters, live_fields

OTHER = {"router": {"weights": {"ngram": 5.0}, "exploration": 0.3}}


def test_changes_are_over_the_configuration(config):
    after = changed(config, OTHER | {"http": {"max_answer_seconds": 20}})
    assert (after.router.weights, after.router.exploration) == ({"ngram": 5.0}, 0.3)
    assert after.http.max_answer_seconds == 20.0
    rest = {"router": config.router, "http": config.http}
    assert after.model_copy(update=rest) == config
    assert live_fields(after)["router"]["weights"] == {"ngram": 5.0}
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
