"""Alerts and recordings ask only for metrics that are exported, and say what to do."""

import re
from pathlib import Path

import ray.serve
from exported_metrics import labels
from manifests import ROOT
from rendered import needs_kubectl, of_kind, ray_groups, rendered

pytestmark = needs_kubectl
PAGE = (ROOT / "docs" / "operations.md").read_text()
FUNCTIONS = {
    *("sum", "min", "max", "count", "rate", "absent", "deriv", "histogram_quantile"),
    *("min_over_time", "last_over_time"),
}
WORDS = {"by", "on", "or", "and", "unless"}
TEXTS = ("summary", "description", "runbook")


def rules():
    for document in of_kind(rendered("cpu"), "PrometheusRule"):
        for group in document["spec"]["groups"]:
            yield from group["rules"]


def of_ray_serve():
    """Those of Ray Serve's that the page names, as far as the installed Ray has them."""
    folder = Path(ray.serve.__file__).parent / "_private"
    code = "\n".join(file.read_text() for file in folder.glob("*.py"))
    for name in re.findall(r"`(ray_serve_\w+)`", PAGE):
        if f'"{name.removeprefix("ray_").removesuffix("_total")}"' in code:
            yield name


def asked(expression):
    """The metrics that an expression names: what is neither a function, a word, nor a label."""
    expression = re.sub(r'"[^"]*"', "", expression)
    expression = re.sub(r"\[[^\]]*\]|\{[^}]*\}", " ", expression)
    expression = re.sub(r"\b(by|on)\s*\([^)]*\)", " ", expression)
    names = set(re.findall(r"[a-zA-Z_:][\w:]*", expression))
    return names - FUNCTIONS - WORDS


def known():
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    return recorded | labels().keys() | set(of_ray_serve())


def test_expressions_ask_for_metrics_that_exist():
    there = known()
    for rule in rules():
        names = asked(rule["expr"])
        assert names, rule
        assert names <= there, names - there


def test_expressions_group_and_filter_by_labels_that_exist():
    known = {"namespace"}.union(*labels().values())
    of_serve = {"deployment", "replica", "application"}
    for rule in rules():
        grouped = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", rule["expr"])
        used = {name.strip() for group in grouped for name in group.split(",")}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*=~?\"", rule["expr"]))
        assert used <= (known | of_serve if "ray_serve" in rule["expr"] else known), rule


def test_texts_name_only_metrics_that_exist():
    there = {re.sub("_(bucket|sum|count)$", "", name) for name in known()} | known()
    for rule in rules():
        for text in rule.get("annotations", {}).values():
            assert set(re.findall(r"ray_(?:specadapt|serve)_\w+", text)) <= there


def test_every_alert_says_what_is_wrong_and_what_to_do():
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) == len({rule["alert"] for rule in alerts})
    for rule in alerts:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"].keys() == set(TEXTS)
        assert all(rule["annotations"].values())
        assert "for" in rule


def test_the_monitor_scrapes_the_port_that_ray_exports_on():
    [monitor] = of_kind(rendered("cpu"), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    for group in ray_groups(rendered("cpu")):
        [container] = group["template"]["spec"]["containers"]
        assert {"name": endpoint["port"], "containerPort": 8080} in container["ports"]
