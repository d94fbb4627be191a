"""`specadapt train measure-draft` and `measure-heads` on a tiny family, and what the card says."""

import json
import shutil
from pathlib import Path

import pytest

CARD = Path(__file__).parents[3] / "bundles/demo/card.json"


@pytest.fixture
def family(tiny_bundle, tmp_path):
    """A bundle of one's own to write into, and held rows of two domains."""
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle.path, bundle)
    rows = [
        {
            "id": f"{domain}-{i}",
            "domain": domain,
            "source": "tests",
            "messages": [
                {"role": "user", "content": f"What comes after {i}?"},
                {"role": "assistant", "content": f"After {i} comes {i + 1}, and then {i + 2}."},
            ],
        }
        for domain in ("math", "edit")
        for i in range(3)
    ]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return bundle, ["--bundle", bundle, "--corpus", tmp_path, "--per-domain", 2, "--threads", 1]


def test_a_heads_mat_stands_in_the_card(specadapt, family) -> None:
    bundle, flags = family
    shutil.copy(CARD, bundle / "card.json")
    before = json.loads(CARD.read_text())
    figures = specadapt.json("train", "measure-heads", "--methods", "naive,eagle", *flags)
    assert figures.keys() == {"naive", "eagle"}
    assert figures["naive"] == {"mat": 1.0, "mat_by_domain": {"edit": 1.0, "math": 1.0}}
    assert figures["eagle"]["mat"] >= 1.0
    assert json.loads((bundle / "card.json").read_text()) == before | {"heads": figures}
    assert "| domain | naive | eagle |" in (bundle / "README.md").read_text()


def test_a_drafts_mat_is_that_of_draft_verify(specadapt, family) -> None:
    _, flags = family
    figures = specadapt.json("train", "measure-draft", *flags)
    assert figures["mat"] >= 1.0
    assert figures["mat_by_domain"].keys() == {"edit", "math"}


@pytest.mark.parametrize("log", ["", "\n"])
def test_a_training_log_without_a_line_is_named(specadapt, family, tmp_path, log) -> None:
    _, flags = family
    file = tmp_path / "log.jsonl"
    file.write_text(log)
    line = specadapt.refusal("train", "card", "--target-log", file, *flags)
    assert f"{file}: no line" in line
    assert "--target-log" in line


def test_without_a_card_there_is_nothing_to_write_into(specadapt, family) -> None:
    _, flags = family
    assert "card.json" in specadapt.refusal("train", "measure-heads", *flags)
