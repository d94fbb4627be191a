"""What the pods of every overlay may do, and that whatever selects pods selects some."""

import re

import pytest
from manifests import ROOT
from rendered import (
    JOBS,
    OVERLAYS,
    application,
    composed,
    needs_kubectl,
    of_kind,
    pods,
    ray_groups,
    ray_pods,
    rendered,
    selects,
)

pytestmark = needs_kubectl
every_overlay = pytest.mark.parametrize("documents", OVERLAYS, indirect=True)
DEPLOY = ROOT / "docs" / "deploy.md"
TLS = "specadapt-tls"
"""The Secret of a Gateway that is the cluster's."""


@pytest.fixture
def documents(request):
    return rendered(request.param)


@pytest.mark.parametrize("documents", [*OVERLAYS, *JOBS], indirect=True)
def test_every_container_is_locked_and_has_resources(documents):
    for pod in pods(documents):
        assert pod.spec["automountServiceAccountToken"] is False, pod.name
        assert pod.spec["securityContext"]["runAsNonRoot"] is True, pod.name
        assert pod.spec["securityContext"]["runAsUser"] > 0, pod.name
        for container in pod.containers:
            name = f"{pod.name}/{container['name']}"
            assert container["securityContext"] == {
                "runAsNonRoot": True,
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            }, name
            assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
            limits = container["resources"]["limits"]
            assert limits["memory"] == container["resources"]["requests"]["memory"], name


@every_overlay
def test_ray_finds_the_places_it_writes_to(documents):
    for pod in pods(documents):
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        for container in pod.containers:
            mounts = {m["mountPath"]: m["name"] for m in container.get("volumeMounts", [])}
            if pod.labels["app.kubernetes.io/component"] == "redis":
                assert set(mounts) == {"/data"}
                continue
            assert set(mounts.values()) <= set(volumes)
            assert "sizeLimit" in volumes[mounts["/tmp"]]["emptyDir"]
            assert {"name": "HOME", "value": "/tmp"} in container["env"]
            if container["name"] != "autoscaler":
                shared = volumes[mounts["/dev/shm"]]["emptyDir"]
                assert shared["medium"] == "Memory"
                assert "sizeLimit" in shared


def mounts_of(pod):
    return {mount["mountPath"] for mount in pod.containers[0].get("volumeMounts", [])}


@every_overlay
def test_every_ray_pod_has_the_volume_that_the_state_is_on(documents):
    place = application(documents)["args"]["feedback"]["state_uri"]
    for pod in ray_pods(documents):
        assert place in mounts_of(pod), pod.name
        claims = [v["name"] for v in pod.spec["volumes"] if "persistentVolumeClaim" in v]
        assert "state" in claims, pod.name


def test_without_the_state_component_there_is_no_shared_volume(tmp_path):
    documents = composed(tmp_path, [])
    assert not of_kind(documents, "PersistentVolumeClaim")
    for pod in pods(documents):
        assert "/state" not in mounts_of(pod), pod.name
        assert not [v for v in pod.spec["volumes"] if "persistentVolumeClaim" in v], pod.name


@every_overlay
def test_the_object_store_fits_into_shared_memory(documents):
    for group in ray_groups(documents):
        store = int(group["rayStartParams"]["object-store-memory"])
        [shared] = [v for v in group["template"]["spec"]["volumes"] if v["name"] == "shm"]
        assert store < int(shared["emptyDir"]["sizeLimit"].removesuffix("Gi")) * 2**30


@every_overlay
def test_only_the_autoscaler_has_a_token_of_the_api_server(documents):
    for pod in pods(documents):
        tokens = {v["name"] for v in pod.spec.get("volumes", []) if "projected" in v}
        for container in pod.containers:
            mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert bool(mounted & tokens) == (container["name"] == "autoscaler")


@every_overlay
def test_a_worker_lives_by_its_raylet_and_is_ready_by_its_own_proxy(documents):
    for pod in pods(documents):
        if pod.labels["app.kubernetes.io/component"] != "worker":
            continue
        [container] = pod.containers
        assert container["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": 8000}
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/api/healthz", "port": 52365}
        drained = re.search(
            r"sleep (\d+)", container["lifecycle"]["preStop"]["exec"]["command"][-1]
        )
        assert int(drained[1]) < pod.spec["terminationGracePeriodSeconds"]


@every_overlay
def test_one_worker_may_be_evicted_at_a_time(documents):
    """`maxUnavailable` needs the scale subresource, which a RayCluster does not have."""
    [budget] = of_kind(documents, "PodDisruptionBudget")
    assert "maxUnavailable" not in budget["spec"]
    least = sum(group["minReplicas"] for group in ray_groups(documents)[1:])
    assert budget["spec"]["minAvailable"] == least - 1 >= 1


@every_overlay
def test_roles_name_what_they_permit(documents):
    assert not of_kind(documents, "ClusterRole")
    accounts = {account["metadata"]["name"] for account in of_kind(documents, "ServiceAccount")}
    roles = {role["metadata"]["name"]: role for role in of_kind(documents, "Role")}
    for role in roles.values():
        for rule in role["rules"]:
            for values in rule.values():
                assert "*" not in values
            assert set(rule["verbs"]) <= {"get", "list", "patch"}
    for binding in of_kind(documents, "RoleBinding"):
        assert binding["roleRef"]["name"] in roles
        assert {subject["name"] for subject in binding["subjects"]} <= accounts
    for pod in pods(documents):
        assert pod.spec.get("serviceAccountName", "specadapt-head") in accounts


def selectors(documents):
    """Name -> selector of what chooses pods of its own namespace."""
    for policy in of_kind(documents, "NetworkPolicy"):
        name, spec = policy["metadata"]["name"], policy["spec"]
        yield name, spec["podSelector"]
        for rule in (*spec.get("ingress", []), *spec.get("egress", [])):
            for peer in (*rule.get("from", []), *rule.get("to", [])):
                if "podSelector" in peer and "namespaceSelector" not in peer:
                    yield f"{name}: peer", peer["podSelector"]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        for document in of_kind(documents, kind):
            yield document["metadata"]["name"], document["spec"]["selector"]
    for service in of_kind(documents, "Service"):
        yield service["metadata"]["name"], {"matchLabels": service["spec"]["selector"]}


@every_overlay
def test_whatever_selects_pods_selects_some(documents):
    there = list(pods(documents))
    found = list(selectors(documents))
    assert {kind["kind"] for kind in documents} >= {"NetworkPolicy", "PodDisruptionBudget"}
    for name, selector in found:
        assert any(selects(selector, pod.labels) for pod in there), name


@every_overlay
def test_every_pod_is_closed_unless_a_policy_opens_it(documents):
    policies = {p["metadata"]["name"]: p["spec"] for p in of_kind(documents, "NetworkPolicy")}
    deny = policies.pop("specadapt-default-deny")
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert deny.keys() == {"podSelector", "policyTypes"}
    for pod in pods(documents):
        assert selects(deny["podSelector"], pod.labels), pod.name
    opened = {
        (port["port"], peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"])
        for spec in policies.values()
        for rule in spec.get("ingress", [])
        for port in rule.get("ports", [])
        for peer in rule["from"]
        if "namespaceSelector" in peer
    }
    assert opened == {
        *((8000, "gateway-system"), (8080, "monitoring")),
        *((8265, "kuberay-system"), (8000, "kuberay-system")),
    }


@every_overlay
def test_the_way_in_is_a_gateway_with_tls_and_keys(documents):
    assert not of_kind(documents, "Ingress")
    [route] = of_kind(documents, "HTTPRoute")
    [parent] = route["spec"]["parentRefs"]
    assert parent["sectionName"] == "https"
    [policy] = [
        p for p in of_kind(documents, "NetworkPolicy") if "clients" in p["metadata"]["name"]
    ]
    [peer] = policy["spec"]["ingress"][0]["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": parent["namespace"]
    }
    keys_file = application(documents)["args"]["http"]["guard"]["keys_file"]
    folder, _, file = keys_file.rpartition("/")
    keys = {"name": "keys", "secret": {"secretName": "specadapt-keys"}}
    for pod in ray_pods(documents):
        assert keys in pod.spec["volumes"], pod.name
        mount = {"name": "keys", "mountPath": folder, "readOnly": True}
        assert mount in pod.containers[0]["volumeMounts"], pod.name
    assert f"--from-file={file}" in DEPLOY.read_text()


CLUSTER_DNS = {"169.254.20.10/32", "10.96.0.10/32"}
"""NodeLocal DNSCache's own address, and that of the Service kube-dns in kubeadm's clusters."""


@pytest.mark.parametrize("documents", [*OVERLAYS, *JOBS], indirect=True)
def test_pods_reach_a_dns_cache_in_the_nodes_network(documents):
    [dns] = [
        p for p in of_kind(documents, "NetworkPolicy") if p["metadata"]["name"].endswith("dns")
    ]
    [rule] = dns["spec"]["egress"]
    assert rule["ports"] == [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]
    assert {peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer} == CLUSTER_DNS
    assert any("namespaceSelector" in peer for peer in rule["to"])
    for pod in pods(documents):
        redis = pod.labels["app.kubernetes.io/component"] == "redis"
        assert selects(dns["spec"]["podSelector"], pod.labels) != redis, pod.name


@every_overlay
def test_prometheus_finds_its_objects_by_one_label_in_one_place(documents):
    found = [d for d in documents if d["apiVersion"].startswith("monitoring.coreos.com/")]
    assert len(found) == 3
    assert {d["metadata"]["labels"]["release"] for d in found} == {"kube-prometheus-stack"}
    files = [f for f in (ROOT / "k8s").rglob("*.yaml") if "release: kube-prom" in f.read_text()]
    assert [f.relative_to(ROOT / "k8s").parts[:2] for f in files] == [("components", "monitoring")]


def secrets(value):
    """Names of Secrets, and their keys, wherever a document refers to one."""
    if isinstance(value, dict):
        if "secretKeyRef" in value:
            yield value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
        if "secretName" in value:
            yield value["secretName"], None
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from secrets(inner)


def test_the_secrets_are_those_that_the_page_makes():
    made = dict(re.findall(r"kubectl create secret \w+ ([\w-]+) (.*)", DEPLOY.read_text()))
    needed = set()
    for name in (*OVERLAYS, *JOBS):
        documents = rendered(name)
        assert not of_kind(documents, "Secret"), "what is in the repository is no secret"
        needed |= set(secrets(documents))
    assert {secret for secret, _ in needed} == {name for name in made if name != TLS}
    for secret, key in needed:
        assert key is None or f"--from-literal={key}=" in made[secret]
