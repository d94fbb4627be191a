"""`datastore build`: an index that a configuration takes, and bad files refused by line."""

import json

from workers.drafting.lookup.datastore import Corpus


def test_texts_are_indexed_and_a_configuration_takes_the_index(specadapt, tiny_bundle, tmp_path):
    page, answers, out = tmp_path / "page.md", tmp_path / "answers.jsonl", tmp_path / "index"
    page.write_text("How to reset the pump: hold the red key for five seconds.\n")
    rows = (
        {"prompt": "Who?", "response": "Nobody at all knows that."},
        {"text": "A text of its own."},
    )
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    build = ("datastore", "build", "--out", out, "--bundle", tiny_bundle.path)
    figures = specadapt.json(*build, page, answers)
    assert figures["texts"] == 3
    ids = [
        tiny_bundle.backend_tokenizer().encode(text, add_special_tokens=False).ids
        for text in (page.read_text(), "Nobody at all knows that.", "A text of its own.")
    ]
    assert figures["tokens"] == sum(map(len, ids))
    corpus = Corpus.open(out, tiny_bundle.tokenizer_hash)
    for text in ids:
        follow = [list(one.text[:3]) for one in corpus.find(text[:4])]
        assert text[4:7] in follow
    assert specadapt.json(*build, page)["texts"] == 1

    config = tmp_path / "config.yaml"
    fields = {
        "bundle": str(tiny_bundle.path),
        "methods": [{"name": "naive"}, {"name": "suffix"}],
        "engine": {"datastore": {"folder": str(out)}},
        "feedback": {"state_uri": str(tmp_path / "state")},
    }
    config.write_text(json.dumps(fields))
    assert "valid" in specadapt("config", "validate", config).stdout
    next(out.glob("*.index")).write_bytes(b"spoilt")
    refused = specadapt.refusal("config", "validate", config)
    assert "engine.datastore.folder" in refused
    assert "specadapt datastore build" in refused


def test_bad_files_are_named_and_nothing_is_written(specadapt, tiny_bundle, tmp_path):
    out, rows = tmp_path / "index", tmp_path / "rows.jsonl"
    build = ("datastore", "build", "--out", out, "--bundle", tiny_bundle.path)
    for line, says in (
        ('{"text": "a"}\n{"prompt": "b"}', "line 2"),
        ('{"text": 3}', "line 1"),
        ('{"text": "a", "response": "b"}', "line 1"),
        ("[1]", "line 1"),
        ("no", "line 1"),
    ):
        rows.write_text(line)
        refused = specadapt.refusal(*build, rows)
        assert "rows.jsonl" in refused
        assert says in refused
    assert "none.md" in specadapt.refusal(*build, tmp_path / "none.md")
    (tmp_path / "empty.md").write_text("")
    assert "no text" in specadapt.refusal(*build, tmp_path / "empty.md")
    assert not out.exists()
