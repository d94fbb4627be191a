"""`specadapt trace`: a folder that grows, is gone on with, and refuses what does not belong."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ops.tables.trace_store import TracedAnswer, TraceStore, files, read_meta, read_rows
from schemas import MeasuredUnder
from schemas.profile import ProfileMeta
from schemas.text_files import FileError

METHODS = "naive,ngram,draft_verify"
SURE = "naive,suffix,draft_verify"


@pytest.fixture
def trace_folder(tmp_path):
    """A trace of one answer, as the store writes it."""
    under = MeasuredUnder(machine="x", device="cpu", dtype="float32", threads=1, bundle="b@0")
    meta = ProfileMeta(
        measured_under=under,
        methods=("naive",),
        settings_hashes={"naive": "0"},
        lossless={"naive": True},
        max_tokens=4,
    )
    row = TracedAnswer(
        *("a", "math", "One?", (1, 2), 0.0, "naive", (3, 4), "length", False, ((),), ((),))
    )
    TraceStore(tmp_path / "trace", meta).add([row])
    return tmp_path / "trace"


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
    for name, by_temperature in figures["methods"].items():
        parts = [domain[name]["0"] for domain in figures["by_domain"].values()]
        for count in ("answers", "tokens", "looping"):
            assert sum(part[count] for part in parts) == by_temperature["0"][count]
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


def test_what_drafters_say_of_their_tokens_is_held_against_what_came(specadapt, command, tmp_path):
    command[command.index("--methods") + 1] = SURE
    figures = specadapt.json(*command, "--limit", 6)["reliability"]
    assert not figures["naive"]
    rows = list(read_rows(tmp_path / "trace"))
    for name in ("suffix", "draft_verify"):
        graded = [
            (sure, now)
            for row in rows
            if row["method"] == name
            for kept, confidences in zip(row["kept"], row["confidences"], strict=True)
            for before, now, sure in zip([1.0, *kept], kept, confidences, strict=False)
            if before
        ]
        bins = figures[name]["0"]
        assert sum(one["drafts"] for one in bins) == len(graded) > 0
        for one in bins:
            low = int(one["confidence"] * 10) / 10
            kept = [now for sure, now in graded if low <= sure < low + 0.1 or low == sure == 1.0]
            assert one["kept"] == pytest.approx(sum(kept) / len(kept))


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


def test_answers_of_an_earlier_trace_are_not_decoded_again(
    specadapt, command, tmp_path, monkeypatch
):
    given = specadapt.json(*command, "--limit", 4, "--methods", "naive")
    assert given["methods"]["naive"]["0"]["answers"] == 4
    first = tmp_path / "trace"
    earlier = first.rename(tmp_path / "earlier")
    other = [*command, "--answers", earlier]
    monkeypatch.setattr("ops.tables.trace_answers.engines_of", None)
    specadapt.json(*other, "--limit", 4)
    said = {row["prompt_id"]: row["answer"] for row in read_rows(earlier)}
    rows = list(read_rows(first))
    assert len(rows) == 3 * 4
    assert all(row["answer"] == said[row["prompt_id"]] for row in rows)
    monkeypatch.undo()
    figures = specadapt.json(*other, "--limit", 6)
    assert figures["methods"]["draft_verify"]["0"]["answers"] == 6
    assert "--max-tokens 12" in specadapt.refusal(
        *other, "--max-tokens", 13, "--out", tmp_path / "x"
    )


def test_another_targets_answers_are_refused(specadapt, command, tmp_path):
    specadapt.json(*command, "--limit", 4)
    folder = tmp_path / "trace"
    for file in files(folder):
        table = pq.read_table(file)
        changed = [[token ^ 1 for token in answer] for answer in table["answer"].to_pylist()]
        at = table.schema.get_field_index("answer")
        field = table.schema.field(at)
        pq.write_table(table.set_column(at, field, pa.array(changed, field.type)), file)
    other = [*command, "--limit", 4, "--answers", folder, "--out", tmp_path / "other"]
    assert "another target" in specadapt.refusal(*other)


def test_an_earlier_trace_without_these_answers_is_refused(specadapt, command, tmp_path):
    folder = tmp_path / "trace"
    other = [*command, "--limit", 4, "--answers", folder, "--out", tmp_path / "other"]
    folder.mkdir()
    (folder / "part-00000.parquet").write_bytes(b"PAR1")
    assert "part-00000.parquet: cannot be read as Parquet" in specadapt.refusal(*other)
    (folder / "part-00000.parquet").unlink()
    specadapt.json(*command, "--limit", 4, "--methods", "naive")
    asked = specadapt.refusal(*other, "--temperature", 0.8)
    assert f"{folder} has no answer to these prompts at temperature 0.8" in asked
    [file] = files(folder)
    table = pq.read_table(file)
    at = table.schema.get_field_index("answer")
    empty = pa.array([None] * len(table), table.schema.field(at).type)
    pq.write_table(table.set_column(at, table.schema.field(at), empty), file)
    assert "has no answer to" in specadapt.refusal(*other)


def test_what_cannot_be_traced_is_refused(specadapt, command):
    assert "typical" in specadapt.refusal(*command, "--methods", "naive,medusa_typical")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda _: b"", "cannot be read as Parquet"),
        (lambda body: body[:-20], "cannot be read as Parquet"),
        (lambda body: body[: len(body) // 2] + bytes(99) + body[len(body) // 2 + 99 :], "Parquet"),
        (lambda _: b"cluster,a\n0,1\n", "cannot be read as Parquet"),
    ],
)
def test_a_broken_part_of_a_trace_is_one_line(trace_folder, damage, said):
    [file] = files(trace_folder)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(FileError, match=said) as caught:
        list(read_rows(trace_folder))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "columns", [{"prompt_id": ["a"]}, {"prompt_id": [1]}], ids=["missing", "other type"]
)
def test_a_part_with_other_columns_is_refused(trace_folder, columns):
    [file] = files(trace_folder)
    pq.write_table(pa.table(columns).replace_schema_metadata(pq.read_schema(file).metadata), file)
    for read in (lambda: list(read_rows(trace_folder)), lambda: read_meta(trace_folder)):
        with pytest.raises(FileError, match=r"no column (prompt_id|domain) of type string"):
            read()


def test_a_part_without_settings_is_refused(trace_folder):
    [file] = files(trace_folder)
    pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    with pytest.raises(ValueError, match="no part of a trace"):
        read_meta(trace_folder)
    settings = pq.read_schema(file).with_metadata({"specadapt": '{"methods": []}'})
    pq.write_table(pq.read_table(file).cast(settings), file)
    with pytest.raises(FileError, match="measured_under: Field required"):
        read_meta(trace_folder)
