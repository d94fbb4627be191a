"""`specadapt trace`: a folder that grows, is gone on with, and refuses what does not belong."""

import pyarrow.parquet as pq
import pytest

from ops.trace.store import files, read_meta, read_rows

METHODS = "naive,ngram,draft_verify"


@pytest.fixture
def command(tiny_bundle, prompts_file, tmp_path):
    return [
        *["trace", "--out", tmp_path / "trace", "--bundle", tiny_bundle.path],
        *["--prompts", prompts_file, "--max-tokens", 12, "--dtype", "float32", "--batch", 2],
        *["--methods", METHODS],
    ]


def test_every_prompt_is_answered_once_and_traced_under_each_method(specadapt, command, tmp_path):
    figures = specadapt.json(*command, "--limit", 4)
    assert set(figures["methods"]) == set(METHODS.split(","))
    assert figures["methods"]["naive"]["0"]["mat"] == 1.0
    assert figures["methods"]["draft_verify"]["0"]["mat"] > 1.0
    rows = list(read_rows(tmp_path / "trace"))
    assert len(rows) == 4 * 3
    for row in rows:
        assert len(row["kept"]) == len(row["confidences"]) == len(row["answer"]) - 1
        assert row["text"]
        assert row["prompt"]
    by_method = {row["method"]: row for row in rows if row["prompt_id"] == rows[0]["prompt_id"]}
    assert len({tuple(row["answer"]) for row in by_method.values()}) == 1
    assert all(level == [] for level in by_method["naive"]["kept"])
    assert all(0.0 <= v <= 1.0 for level in by_method["draft_verify"]["kept"] for v in level)
    assert read_meta(tmp_path / "trace").max_tokens == 12


def test_a_second_run_goes_on(specadapt, command, tmp_path):
    specadapt.json(*command, "--limit", 4)
    folder = tmp_path / "trace"
    before = {file: file.stat().st_mtime_ns for file in files(folder)}
    assert specadapt.json(*command, "--limit", 4)["methods"]["naive"]["0"]["answers"] == 4
    assert {file: file.stat().st_mtime_ns for file in files(folder)} == before
    figures = specadapt.json(*command)
    assert figures["methods"]["ngram"]["0"]["answers"] == 12
    warm = specadapt.json(*command, "--limit", 2, "--temperature", 0.8)["methods"]["ngram"]
    assert (warm["0"]["answers"], warm["0.8"]["answers"]) == (12, 2)
    asked = [(r["prompt_id"], r["temperature"], r["method"]) for r in read_rows(folder)]
    assert len(set(asked)) == len(asked) == 3 * 14
    assert pq.read_schema(files(folder)[0]).metadata


def test_other_settings_need_another_folder(specadapt, command):
    specadapt.json(*command, "--limit", 2)
    said = specadapt.refusal(*command, "--limit", 2, "--max-tokens", 13)
    assert "max_tokens was 12 and is 13 now; take another --out" in said
    assert "methods was" in specadapt.refusal(*command, "--limit", 2, "--methods", "naive,ngram")


def test_what_cannot_be_traced_is_refused(specadapt, command):
    assert "typical" in specadapt.refusal(*command, "--methods", "naive,medusa_typical")
