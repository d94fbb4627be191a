"""`specadapt train measure-draft` and `measure-heads` on a tiny family."""

import json
import shutil

import pytest


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


def test_the_mat_of_each_method_is_measured(specadapt, family) -> None:
    _, flags = family
    figures = specadapt.json("train", "measure-heads", "--methods", "naive,eagle", *flags)
    assert figures.keys() == {"naive", "eagle"}
    assert figures["naive"] == {"mat": 1.0, "mat_by_domain": {"edit": 1.0, "math": 1.0}}
    assert figures["eagle"]["mat"] >= 1.0


def test_a_drafts_mat_is_that_of_draft_verify(specadapt, family) -> None:
    _, flags = family
    figures = specadapt.json("train", "measure-draft", *flags)
    assert figures["mat"] >= 1.0
    assert figures["mat_by_domain"].keys() == {"edit", "math"}
