"""The shipped prompts and profiles that make routing's evaluation repeatable from a clone."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "ops" / "data"

# Methods, prompts, routed speedup over `naive`, routed over the best single method: shipped tables
# on shipped profiles. The encoder adds integers, so every CPU finds the same.
SMOLLM2 = ["naive", "ngram", "suffix", "medusa", "eagle3", "adaptive"]
DEMO = ["naive", "draft_verify", "ngram", "medusa", "eagle2", "eagle3"]
EVALUATED = {
    "smollm2": (SMOLLM2, 78, 1.57883966, 1.00244683),
    "demo": (DEMO, 149, 1.9954310, 1.02661111),
}


def test_every_generated_prompt_of_the_lists_is_shipped():
    lines = (DATA / "generated_prompts.jsonl").read_text(encoding="utf-8").splitlines()
    shipped = {json.loads(line)["id"] for line in lines}
    named = {name for file in DATA.glob("*_ids.txt") for name in file.read_text().split()}
    assert shipped == {name for name in named if name.startswith("generated-")}


@pytest.mark.parametrize("family", EVALUATED)
def test_routing_is_worth_what_it_was(family, specadapt, tmp_path):
    methods, prompts, routed, over_best = EVALUATED[family]
    table, chosen = Path("bundles") / family / "routing", ",".join(methods)
    found, profile = tmp_path / "found.json", DATA / "evaluation" / family
    judged = ["evaluate", "--routing", table, "--profile", profile, "--methods", chosen]
    assert specadapt(*judged, "--json", found).exit_code == 0
    figures = json.loads(found.read_text(encoding="utf-8"))
    assert figures["prompts"] == prompts
    assert figures["routed"] == pytest.approx(routed, rel=1e-6)
    assert figures["routed_over_best_single"] == pytest.approx(over_best, rel=1e-6)
