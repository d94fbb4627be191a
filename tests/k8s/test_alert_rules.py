"""Alerts fire when they should, by Prometheus' own rule tests."""

import json
import shutil
import subprocess

import pytest
from rendered import needs_kubectl, of_kind, rendered

pytestmark = [
    needs_kubectl,
    pytest.mark.skipif(
        shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
    ),
]

MINUTES = 120
HERE = 'namespace="here"'


def healthy(deployment, values=f"1x{MINUTES}"):
    labels = f'application="specadapt",deployment="{deployment}",{HERE}'
    return {f"ray_serve_deployment_replica_healthy{{{labels}}}": values}


def counts(name, per_minute, **labels):
    """A counter that goes on evenly."""
    written = ",".join([HERE, *(f'{key}="{value}"' for key, value in labels.items())])
    return {f"ray_specadapt_{name}_total{{{written}}}": f"0+{per_minute}x{MINUTES}"}


def stays(name, value, **labels):
    written = ",".join([HERE, *(f'{key}="{value}"' for key, value in labels.items())])
    return {f"ray_specadapt_{name}{{{written}}}": f"{value}x{MINUTES}"}


def first_tokens(seconds):
    """A histogram of answers whose first token always takes as long."""
    buckets = ("0.5", "1.0", "2.5", "5.0", "10.0", "+Inf")
    return {
        f'ray_specadapt_ttft_seconds_bucket{{{HERE},method="naive",le="{edge}"}}': (
            f"0+{60 if float(edge) >= seconds else 0}x{MINUTES}"
        )
        for edge in buckets
    }


ORDER = healthy("ingress") | healthy("naive")
ANSWERED = counts("requests", 60, method="naive", reason="preferred", outcome="stop")
GOOD = ORDER | ANSWERED | stays("circuit_state", 0, method="naive") | first_tokens(0.4)
STARTS = 'ray_serve_deployment_replica_starts_total{application="specadapt",deployment="naive",'

# The alerts' names begin with SpecAdapt.
SCENARIOS = {
    "in order": (GOOD, set()),
    "nothing is scraped": ({}, {"NoIngress", "NoMethod"}),
    "no method": (healthy("ingress"), {"NoMethod"}),
    "all circuits open": (
        ORDER | stays("circuit_state", 2, method="naive"),
        {"NoMethod", "CircuitOpen"},
    ),
    "one circuit open": (GOOD | stays("circuit_state", 2, method="ngram"), {"CircuitOpen"}),
    "one answer in twelve breaks off": (
        GOOD | counts("requests", 5, method="naive", reason="preferred", outcome="error"),
        {"Errors"},
    ),
    "refused as ever": (GOOD | counts("refused", 5, status="429"), set()),
    "nobody answers": (GOOD | counts("refused", 5, status="503"), {"Errors"}),
    "slow first tokens": (ORDER | ANSWERED | first_tokens(4.0), {"SlowFirstToken"}),
    "a line that grows": (
        GOOD | {f"ray_specadapt_replica_waiting{{{HERE}}}": f"1+1x{MINUTES}"},
        {"WaitingGrows"},
    ),
    "a line that does not": (GOOD | stays("replica_waiting", 3), set()),
    "a drafter fails": (
        GOOD | counts("replica_drafter_failures", 1, replica="a", drafter="eagle3"),
        {"DrafterFails"},
    ),
    "a drafter failed once": (
        GOOD | stays("replica_drafter_failures_total", 3, replica="a", drafter="eagle3"),
        set(),
    ),
    "no feedback actor": (GOOD | counts("degraded", 30, mode="no-feedback"), {"NoFeedback"}),
    "no encoder": (GOOD | counts("degraded", 30, mode="no-encoder"), {"NoEncoder"}),
    "replicas come and go": (
        GOOD
        | {
            f'{STARTS}{HERE},replica="{index}"}}': "_x90 1x2 _x2" if index else f"1x{MINUTES}"
            for index in range(14)
        },
        {"ReplicasComeAndGo"},
    ),
    "a user_config that is refused": (GOOD | stays("settings_refused", 1), {"SettingsRefused"}),
    "settings in force": (GOOD | stays("settings_refused", 0), set()),
    "drift": (GOOD | stays("drift", 0.3), {"Drift"}),
}


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """The rules of the monitoring component, as Prometheus reads them."""
    groups = [
        group
        for document in of_kind(rendered("cpu"), "PrometheusRule")
        for group in document["spec"]["groups"]
    ]
    file = tmp_path_factory.mktemp("rules") / "rules.json"
    file.write_text(json.dumps({"groups": groups}))
    return file


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_fires(rules, tmp_path, name):
    series, firing = SCENARIOS[name]
    test = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "105m",
                "exp_samples": [
                    {"labels": f'{{alertname="SpecAdapt{alert}"}}', "value": 1}
                    for alert in sorted(firing)
                ],
            }
        ],
    }
    file = tmp_path / "test.json"
    body = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    file.write_text(json.dumps(body))
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_once_at_least(rules):
    groups = json.loads(rules.read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    fired = set().union(*(firing for _, firing in SCENARIOS.values()))
    assert alerts == {f"SpecAdapt{name}" for name in fired}
