"""The jobs that make bundles: what they may reach, and that their commands make one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rendered import JOBS, application, needs_kubectl, of_kind, pods, rendered, selects

from deployments.configuration import validated
from workers.bundle import load_bundle

pytestmark = needs_kubectl
every_job = pytest.mark.parametrize("name", JOBS)
PARTS = ("draft", "eagle3")


def container(name, which):
    [pod] = pods(rendered(name))
    [found] = [one for one in pod.containers if one["name"] == which]
    return found


def environment(name, which):
    return {e["name"]: e.get("value") for e in container(name, which)["env"]}


@every_job
def test_a_job_reaches_public_https_and_no_more(name):
    documents = rendered(name)
    [pod] = pods(documents)
    policies = [p["spec"] for p in of_kind(documents, "NetworkPolicy")]
    assert all(selects(policy["podSelector"], pod.labels) for policy in policies)
    assert not [policy for policy in policies if "ingress" in policy]
    assert any(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)
    rules = [rule for policy in policies for rule in policy["egress"]]
    opened = {port["port"]: rule["to"] for rule in rules for port in rule["ports"]}
    assert opened.keys() == {53, 443}
    [public] = opened[443]
    assert public["ipBlock"]["cidr"] == "0.0.0.0/0"
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} <= set(public["ipBlock"]["except"])


@every_job
def test_a_job_writes_where_an_overlay_reads(name):
    """The bundle's path, and the claim that both mount."""
    [pod] = pods(rendered(name))
    [claim] = [v["persistentVolumeClaim"] for v in pod.spec["volumes"] if v["name"] == "bundles"]
    assert not claim.get("readOnly")
    overlay = rendered("gpu")
    config = validated(application(overlay)["args"])
    assert str(config.bundle) == environment(name, "import")["BUNDLE"]
    readers = [v for pod in pods(overlay) for v in pod.spec.get("volumes", [])]
    mounted = [v["persistentVolumeClaim"] for v in readers if v["name"] == "bundles"]
    assert mounted == [{"claimName": claim["claimName"], "readOnly": True}] * len(mounted)
    for made in (overlay, rendered(name)):
        claims = of_kind(made, "PersistentVolumeClaim")
        assert claim["claimName"] in {one["metadata"]["name"] for one in claims}


@every_job
@pytest.mark.slow
def test_its_commands_make_a_bundle_of_hugging_face_folders(name, tiny_bundle, tmp_path):
    """The import's own, on the folders that the download would have left."""
    checkpoints, bundle = tmp_path / "checkpoints", tmp_path / "llama"
    target = checkpoints / Path(environment(name, "import")["BUNDLE"]).name
    shutil.copytree(tiny_bundle.part("target"), target)
    shutil.copytree(tiny_bundle.part("tokenizer"), target, dirs_exist_ok=True)
    for part in PARTS:
        shutil.copytree(tiny_bundle.part("draft"), checkpoints / part)
        (checkpoints / part / ".cache").mkdir()
    downloads = container(name, "download")["command"][-1]
    for folder in (target.name, *PARTS):
        assert f'"$CHECKPOINTS/{folder}"' in downloads
    env = os.environ | {"CHECKPOINTS": str(checkpoints), "BUNDLE": str(bundle)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for _ in range(2):  # a job that is tried again
        subprocess.run(container(name, "import")["command"], env=env, check=True)
    made = load_bundle(bundle)
    assert made.name == target.name
    assert set(made.parts) == {"target", "tokenizer", *PARTS}
    assert all(made.has(part) for part in made.parts)
    assert not list(bundle.rglob(".cache"))
