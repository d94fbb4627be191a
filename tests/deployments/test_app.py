"""What `build` makes of its args, and how it refuses wrong ones."""

import json

import pytest
from ray.serve import Application
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

from deployments.app import build, deployment_names
from deployments.configuration import ConfigError, resolved
from deployments.guard.key_file import hash_of
from deployments.guard.slots import QUEUED_REQUESTS
from deployments.replica.placement import HIDE_WITHOUT_SHARE
from schemas import AppConfig


def deployments(application):
    """Every deployment of the application by name, the ingress included."""
    found = {}

    def walk(bound):
        found[bound._bound_deployment.name] = bound._bound_deployment
        for argument in bound._bound_deployment.init_args:
            if isinstance(argument, dict):
                for inner in argument.values():
                    walk(inner)
            if isinstance(argument, Application):
                walk(argument)

    walk(application)
    return found


def changed(config, **sections):
    body = config.model_dump()
    for section, values in sections.items():
        body[section] = body[section] | values if isinstance(values, dict) else values
    return AppConfig.model_validate(body)


def environment(deployment):
    """The variables of a replica's process, without the one that all have that may see no GPU."""
    found = dict(deployment.ray_actor_options["runtime_env"]["env_vars"])
    found.pop(HIDE_WITHOUT_SHARE, None)
    return found


def test_every_method_has_a_deployment_with_its_own_resources(config):
    naive = {"name": "naive", "num_gpus": 1, "num_cpus": 2, "max_ongoing_requests": 5}
    ngram = {"name": "ngram", "min_replicas": 1, "max_replicas": 3, "target_seconds": 2}
    methods = [naive | {"drain_seconds": 30}, ngram]
    engine = {"threads": 2, "max_waiting": 7}
    made = deployments(build(changed(config, methods=methods, engine=engine)))
    assert set(made) == {"ingress", "naive", "ngram"}
    naive, ngram = made["naive"], made["ngram"]
    assert naive.max_ongoing_requests == 5
    drains = [one._deployment_config.graceful_shutdown_timeout_s for one in made.values()]
    assert sorted(drains) == [30.0, 120.0, 120.0]
    assert naive.max_queued_requests == 7
    options = naive.ray_actor_options
    assert (options["num_gpus"], options["num_cpus"]) == (1, 2)
    assert environment(naive) == {"OMP_NUM_THREADS": "2"}, "with a core for each thread"
    passive = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
    assert environment(ngram) == {"OMP_NUM_THREADS": "2"} | passive
    pinned = changed(config, methods=methods, engine=engine | {"pin_cores": True})
    pinned = deployments(build(pinned))
    assert environment(pinned["ngram"]) == {"OMP_NUM_THREADS": "2"}
    assert ngram.max_ongoing_requests == 10, "a batch of 8 and a quarter"
    assert ngram.max_queued_requests == 3 * 7, "the lines of three replicas"
    fixed = [{"name": "naive", "min_replicas": 2, "max_replicas": 2}]
    fixed = deployments(build(changed(config, methods=fixed, engine=engine)))["naive"]
    assert (fixed.max_ongoing_requests, fixed.max_queued_requests) == (8 + 7, 7)
    for method in (naive, ngram):
        router = method._deployment_config.request_router_config.get_request_router_class()
        assert router.__name__ == "FewestOutstandingTokens"
    scaling = ngram._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 3)
    assert scaling.policy.policy_kwargs == {"target_seconds": 2.0}
    ingress = made["ingress"]
    slots = config.http.ingress_max_ongoing_requests + QUEUED_REQUESTS
    assert ingress.max_ongoing_requests > slots, "the ingress refuses before Serve lets it wait"
    assert ingress.max_queued_requests == slots
    assert ingress.backpressure_config.status_code == 429
    assert ingress.backpressure_config.retry_after_s >= 1


def test_a_node_may_have_few_replicas(config):
    methods = [{"name": "naive", "max_replicas_per_node": 2}, {"name": "ngram"}]
    http = {"ingress_max_replicas_per_node": 1}
    made = deployments(build(changed(config, methods=methods, http=http)))
    most = {name: one._replica_config.max_replicas_per_node for name, one in made.items()}
    assert most == {"ingress": 1, "naive": 2, "ngram": None}


def test_the_shared_layout_has_one_deployment_for_all(config):
    made = deployments(build(changed(config, layout="shared")))
    assert set(made) == {"ingress", "shared"}
    assert made["shared"].init_args[1] == ("naive", "draft_verify", "ngram")


def test_ray_serve_can_call_it_with_the_args_of_a_file(config):
    made = call_user_app_builder_with_args_if_necessary(build, config.model_dump(mode="json"))
    assert set(deployments(made)) == set(deployment_names(config)), "what a file may override"


def test_artifacts_that_are_not_there_are_named(config, tmp_path):
    with pytest.raises(ConfigError, match=r"bundle\.json"):
        build(changed(config, bundle=tmp_path))
    with pytest.raises(ConfigError, match=r"routing\.json"):
        build(changed(config, router={"routing": tmp_path}))
    with pytest.raises(ConfigError, match=r"engine\.lora_adapters\.law: .*config\.json"):
        build(changed(config, engine={"lora_adapters": {"law": tmp_path}}))


def test_a_method_the_table_does_not_know_is_named(config):
    with pytest.raises(ConfigError, match="fuzzy"):
        build(changed(config, methods=[{"name": "naive"}, {"name": "fuzzy"}]))
    with pytest.raises(ConfigError, match="warp"):
        build(changed(config, methods=[{"name": "warp"}]))


def test_other_settings_than_the_measured_ones_are_refused(config):
    spec = {"name": "naive", "lossless": True, "source": "here", "verifier": "rejection"}
    with pytest.raises(ConfigError, match="settings"):
        build(changed(config, methods=[{"name": "naive", "spec": spec}]))


def test_paths_are_made_absolute_and_uris_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "bundle.json").write_text('{"name": "b", "parts": {}}')
    engine = {"lora_adapters": {"law": "adapters/law"}}
    made = resolved(AppConfig(bundle="b", router={"routing": "r"}, engine=engine))
    assert made.engine.lora_adapters == {"law": tmp_path / "adapters" / "law"}
    assert made.bundle == tmp_path / "b"
    assert [method.name for method in made.methods] == ["naive", "ngram"]
    assert made.router.routing == tmp_path / "r"
    assert made.router.encoder is None
    assert made.feedback.state_uri == str(tmp_path / "state")
    remote = AppConfig(bundle="b", feedback={"state_uri": "s3://bucket/state"})
    assert resolved(remote).feedback.state_uri == "s3://bucket/state"


@pytest.mark.parametrize("trains", [True, False])
def test_training_that_no_method_gains_from_is_warned_of(config, caplog, trains):
    feedback, methods = {"drafter_training": trains}, [{"name": "naive"}]
    build(changed(config, feedback=feedback, methods=methods))
    assert ("no served method drafts with a head" in caplog.text) is trains


@pytest.mark.parametrize("teaches", [True, False, None])
def test_training_on_answers_of_no_key_is_warned_of(config, tmp_path, caplog, teaches):
    file = tmp_path / "keys.json"
    keys = [{"name": "a", "sha256": hash_of("a"), "teaches": teaches}]
    file.write_text(json.dumps({"keys": keys}))
    feedback, http = {"drafter_training": True}, {"guard": {"keys_file": file}}
    build(changed(config, http=http))
    assert caplog.text == ""
    build(changed(config, feedback=feedback, http=http))
    assert (f"no key in {file} says `teaches: true`" in caplog.text) is (not teaches)
