"""`specadapt bench chaos`: what it refuses, and what it knows."""

import json

from ops.load.chaos.command import FaultName
from ops.load.chaos.faults import FAULTS, killer


def test_every_fault_can_be_named():
    assert list(FAULTS) == [name.value for name in FaultName]


def test_killer_grammars_differ_and_are_of_every_kind():
    asked = [killer(number) for number in range(40)]
    assert len({grammar["text"] for grammar in asked}) == 40
    assert {grammar["kind"] for grammar in asked} == {"json_schema", "lark", "regex"}


def test_what_is_refused_is_refused_before_anything_starts(specadapt, tmp_path):
    assert "'flood' is not one of" in specadapt.refusal("bench", "chaos", "--fault", "flood")
    assert "bundle.json" in specadapt.refusal("bench", "chaos", "--bundle", tmp_path)
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": t}) + "\n" for t in (0, 1000)))
    assert "has 2 arrivals" in specadapt.refusal("bench", "chaos", "--trace", trace)
