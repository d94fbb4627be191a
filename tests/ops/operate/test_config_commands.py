"""`config validate|show`: configurations wherever they are written."""

import pytest
import yaml

RAY_SERVICE = "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: x}\nspec: {}\n"


ELSEWHERE = {"drafter": {"part": "other"}}


def own(name, **parts):
    """A method that the configuration itself defines."""
    spec = {"name": name, "lossless": True, "source": "a test"} | parts
    return {"name": name, "spec": spec}


@pytest.fixture
def fields(tiny_bundle, tmp_path):
    return {
        "bundle": str(tiny_bundle.path),
        "methods": [{"name": "naive"}, {"name": "ngram"}],
        "feedback": {"state_uri": str(tmp_path / "state")},
    }


def serve_config(fields):
    application = {"name": "a", "import_path": "deployments.app:build", "args": fields}
    other = {"name": "b", "import_path": "theirs:app", "route_prefix": "/b", "args": {"x": 1}}
    return {"applications": [application, other]}


def manifest(fields):
    service = yaml.safe_load(RAY_SERVICE)
    service["spec"]["serveConfigV2"] = yaml.safe_dump(serve_config(fields))
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x"}}
    return [claim, service]


@pytest.fixture(params=["own", "serve", "manifest"])
def write(request, tmp_path):
    """Writes fields in one of the ways they are written in; returns the file."""

    def written(fields, name="config"):
        file = tmp_path / f"{name}.yaml"
        documents = {
            "own": lambda: [fields],
            "serve": lambda: [serve_config(fields)],
            "manifest": lambda: manifest(fields),
        }[request.param]()
        file.write_text(yaml.safe_dump_all(documents))
        return file

    return written


def test_what_fits_together_is_valid(specadapt, write, fields, tmp_path):
    file = write(fields)
    assert "valid" in specadapt("config", "validate", file).stdout
    assert list(tmp_path.iterdir()) == [file], "the store was opened and left as it was"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methodz": []}, "methodz"),
        ({"engine": {"threads": 0}}, "engine.threads"),
        ({"methods": [{"name": "warp"}]}, "unknown method 'warp'"),
        ({"methods": [own("mine", drafter="warp")]}, "method mine: unknown drafter 'warp'"),
        ({"methods": [own("mine", settings={"stop": {"gamma": "x"}})]}, "gamma is 'x'"),
        ({"methods": [own("mine", drafter="draft_model", settings=ELSEWHERE)]}, "no part 'other'"),
        ({"methods": [own("ingress")]}, "'ingress' is the HTTP ingress's name"),
        ({"bundle": "/no/such"}, "bundle.json"),
        ({"http": {"guard": {"keys_file": "/no/keys"}}}, "http.guard.keys_file"),
        ({"feedback": {"state_uri": "/proc/state"}}, "feedback.state_uri: /proc/state"),
        ({"feedback": {"state_uri": "warp://state"}}, "feedback.state_uri: warp://state"),
        ({"feedback": {"state_uri": "s3://bucket/state"}}, "pip install 'specadapt[s3]'"),
        ({"feedback": {"state_uri": "gs://bucket/state"}}, "pip install 'specadapt[gcs]'"),
    ],
)
@pytest.mark.parametrize("write", ["own"], indirect=True)
def test_what_is_wrong_is_named(specadapt, write, fields, change, said):
    file = write(fields | change)
    message = specadapt.refusal("config", "validate", file)
    assert said in message
    assert "config.yaml" in message


def test_a_field_is_not_written_as_yes_or_no(specadapt, write, fields):
    for change, said in (
        ({"http": {"port": True}}, "http.port: expected a number or text, not true or false"),
        ({"methods": [{"name": False}]}, "methods.0.name: expected a number or text"),
        ({"router": {"weights": {"naive": True}}}, "router.weights: expected a number"),
        ({"router": {"exploration": float("inf")}}, "router.exploration: Input should be a finite"),
    ):
        message = specadapt.refusal("config", "validate", write(fields | change))
        assert said in message
        assert "config.yaml" in message
    assert said in specadapt.refusal("config", "show", write(fields | change))


def served(fields, **changes):
    """A Ray Serve configuration of ours with other fields at its top or in its application."""
    body = serve_config(fields)
    of_application = changes.pop("application", {})
    body["applications"][0] |= of_application
    return body | changes


def application(**fields):
    return {"application": fields}


def naive(**fields):
    return application(deployments=[{"name": "naive"} | fields])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"http_options": {"port": "eighty"}}, "http_options.port: Input should be a valid int"),
        ({"http_options": {"port": True}}, "http_options.port: expected a number or text"),
        ({"proxy_location": "Everynode"}, "proxy_location: Input should be"),
        ({"proxy_location": "HeadOnly"}, "HeadOnly leaves workers without a proxy: set EveryNode"),
        ({"proxy_locaton": "EveryNode"}, "proxy_locaton: unknown field"),
        ({"logging_config": {"log_levle": "INFO"}}, "logging_config.log_levle: unknown field"),
        (application(name="b"), 'multiple configs for application "b"'),
        (application(route_prefix="/b"), 'route prefix "/b"'),
        (application(port=1), "Port 1 is set in the config for application"),
        (application(args=None), "applications.0.args"),
        (application(runtime_env={"env_vars": {"A": False}}), "applications[a].runtime_env: "),
        (application(runtime_env={"env_var": {}}), "runtime_env.env_var: unknown field"),
        (application(runtime_env={"working_dir": "/x"}), "runtime_env: "),
        (naive(num_replica=2), "applications[a].deployments[naive].num_replica: unknown field"),
        (naive(name="medusa"), "deployments: 'medusa' is not one of ingress, naive, ngram"),
        (application(deployments=[{"name": "naive"}] * 2), "deployments: 'naive' is given twice"),
        ({"applications": {}}, "applications: Input should be a valid list"),
    ],
)
def test_what_ray_refuses_or_ignores_is_refused(specadapt, tmp_path, fields, changes, said):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(served(fields, **changes)))
    assert said in specadapt.refusal("config", "validate", file)


def test_what_is_within_a_manifest_is_held_against_rays_schema(specadapt, tmp_path, fields):
    service = yaml.safe_load(RAY_SERVICE)
    file = tmp_path / "service.yaml"
    for inner, said in (
        (yaml.safe_dump(served(fields, proxy_location="Everynode")), "proxy_location"),
        (
            yaml.safe_dump(served(fields)) + "proxy_location: A\nproxy_location: B\n",
            "is given twice",
        ),
        (served(fields), "serveConfigV2: expected text"),
        ("- 1", "applications: Field required"),
        ("applications: [", "not YAML"),
    ):
        service["spec"]["serveConfigV2"] = inner
        file.write_text(yaml.safe_dump(service))
        message = specadapt.refusal("config", "validate", "--fields-only", file)
        assert "service.yaml: serveConfigV2" in message
        assert said in message


def test_a_file_that_ray_reads_is_not_taken_for_the_command_line(specadapt, tmp_path, fields):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(served(fields)))
    assert "give a file with the fields of its `args`" in specadapt.refusal(
        "serve", "--config", file
    )


def test_files_of_other_machines_are_not_looked_for(specadapt, write, fields):
    elsewhere = write(fields | {"bundle": "/app/bundles/x", "feedback": {"state_uri": "/proc/x"}})
    assert "valid" in specadapt("config", "validate", "--fields-only", elsewhere).stdout


def test_what_is_no_configuration_is_said(specadapt, tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("apiVersion: v1\nkind: Service\n")
    assert "no configuration" in specadapt.refusal("config", "validate", file)
    file.write_text("- 1\n")
    assert "expected fields" in specadapt.refusal("config", "validate", file)


def test_defaults_are_shown(specadapt, write, fields):
    shown = yaml.safe_load(specadapt("config", "show", write(fields)).stdout)
    assert shown["http"]["port"] == 8000
    assert [method["name"] for method in shown["methods"]] == ["naive", "ngram"]
    assert shown["methods"][1]["spec"]["drafter"] == "ngram"
    away = yaml.safe_load(specadapt("config", "show", write({"bundle": "/no/such"})).stdout)
    assert away["bundle"] == "/no/such"


def with_live(file, settings):
    """The Serve configuration of `file` with the ingress's user_config."""
    body = yaml.safe_load(file.read_text())
    body["applications"][0]["deployments"] = [{"name": "ingress", "user_config": settings}]
    file.write_text(yaml.safe_dump(body))
    return file


@pytest.mark.parametrize("write", ["serve"], indirect=True)
def test_what_changes_while_it_serves_is_checked_and_shown(specadapt, write, fields):
    good = with_live(write(fields), {"router": {"exploration": 0.2}})
    assert "valid" in specadapt("config", "validate", good).stdout
    shown = yaml.safe_load(specadapt("config", "show", good).stdout)
    assert shown["router"]["exploration"] == 0.2
    bad = with_live(write(fields, "bad"), {"router": {"encoder": "x"}})
    refusal = specadapt.refusal("config", "validate", bad)
    assert "application a: user_config: router.encoder: " in refusal
