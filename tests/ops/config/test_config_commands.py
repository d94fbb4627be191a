"""`config validate|show|diff`: configurations wherever they are written."""

import json

import pytest
import yaml

RAY_SERVICE = "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: x}\nspec: {}\n"


@pytest.fixture
def fields(tiny_bundle):
    return {"bundle": str(tiny_bundle.path), "methods": [{"name": "naive"}, {"name": "ngram"}]}


def serve_config(fields):
    application = {"name": "a", "import_path": "deployments.app:build", "args": fields}
    other = {"name": "b", "import_path": "theirs:app", "args": {"whatever": 1}}
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


def test_what_fits_together_is_valid(specadapt, write, fields):
    assert "valid" in specadapt("config", "validate", write(fields)).stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"methodz": []}, "methodz"),
        ({"engine": {"threads": 0}}, "engine.threads"),
        ({"methods": [{"name": "warp"}]}, "unknown method 'warp'"),
        ({"bundle": "/no/such"}, "bundle.json"),
        ({"http": {"guard": {"keys_file": "/no/keys"}}}, "http.guard.keys_file"),
    ],
)
def test_what_is_wrong_is_named(specadapt, write, fields, change, said):
    file = write(fields | change)
    message = specadapt.refusal("config", "validate", file)
    assert said in message
    assert "config.yaml" in message


def test_files_of_other_machines_are_not_looked_for(specadapt, write, fields):
    elsewhere = write(fields | {"bundle": "/app/bundles/x"})
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


def test_differences_are_those_in_force(specadapt, write, fields):
    old = write(fields)
    same = write(fields | {"http": {"port": 8000}}, "same")
    assert specadapt.json("config", "diff", old, same)["changed"] == {}
    methods = [{"name": "ngram", "num_cpus": 2}, {"name": "naive"}]
    new = write(fields | {"methods": methods, "router": {"exploration": 0.2}}, "new")
    changed = specadapt.json("config", "diff", old, new)["changed"]
    assert changed == {
        "methods.ngram.num_cpus": {"before": 0.5, "after": 2.0},
        "router.exploration": {"before": 0.01, "after": 0.2},
    }
    assert json.dumps(changed)


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
    assert "application a: user_config: router.encoder: does not change" in refusal
