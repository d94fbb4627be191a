"""What holds for every command: help with an example, and bad input as one line."""

import subprocess
import sys

import pytest

from ops.common.boundary import TRACEBACK_VARIABLE

COMMANDS = [
    ["methods"],
    ["generate"],
    ["profile"],
    ["fit"],
    ["evaluate"],
    ["routing", "explain"],
    ["routing", "export"],
    ["keys", "create"],
    ["trace"],
    ["report"],
    ["serve"],
    ["chat"],
    ["export-encoder"],
    ["bench", "decode"],
    ["bench", "serve"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(specadapt, command):
    result = specadapt(*command, "--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert f"Example: specadapt {' '.join(command)}" in text


@pytest.mark.parametrize("group", [[], ["bench"]])
def test_a_group_alone_prints_its_help(specadapt, group):
    result = specadapt(*group)
    assert result.exit_code == 0
    assert "Commands" in result.stdout


def test_help_imports_no_heavy_library():
    program = (
        "import sys, ops.main; "
        "heavy = {'torch', 'ray', 'sklearn', 'transformers', 'numpy', 'pydantic'}; "
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["methdos"], "Did you mean 'methods'?"),
        (["generate", "--method", "naive"], "Missing option '--prompt'"),
        (["generate", "--method", "nope", "--prompt", "x"], "unknown method 'nope'"),
        (["profile", "--out", "x", "--limit", "0"], "'--limit'"),
        (["generate", "--method", "naive", "--prompt", " ", "--bundle", "."], "bundle.json"),
        (["bench", "decode", "--bundle", "no/such"], "--bundle: no/such is not a folder"),
        (["bench", "decode", "--prompts", "no/such.jsonl"], "no/such.jsonl: No such file"),
        (["fit", "--profile", "no/such", "--out", "x"], "no/such is not a profile"),
        (["chat", "--url", "http://127.0.0.1:9"], "no service answers at http://127.0.0.1:9"),
        (["bench", "decode", "--dtype", "float8"], "'--dtype'"),
    ],
)
def test_bad_input_is_one_line(specadapt, arguments, expected):
    assert expected in specadapt.refusal(*arguments)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("engine: {threads: 0}", "engine.threads: Input should be greater than or equal to 1"),
        ("motor: {}", "motor: Extra inputs are not permitted"),
        ("methods: [{name: naive}, {name: naive}]", "methods: each method may be named once"),
        ("- a", "expected fields"),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_configuration_names_its_field(specadapt, tmp_path, body, expected):
    file = tmp_path / "config.yaml"
    file.write_text(body)
    line = specadapt.refusal("serve", "--config", file)
    assert str(file) in line
    assert expected in line


def test_a_traceback_is_there_for_who_asks(specadapt, monkeypatch):
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    with pytest.raises(ValueError, match="unknown method"):
        specadapt("generate", "--method", "nope", "--prompt", "x")


def test_methods_lists_their_parts(specadapt):
    listed = {row["name"]: row for row in specadapt.json("methods")}
    assert {"naive", "draft_verify", "ngram", "fuzzy"} <= listed.keys()
    assert listed["naive"] == {
        "name": "naive",
        "engine": "torch",
        "drafter": "none",
        "tree": "chain",
        "stop": "fixed",
        "verifier": "target_choice",
        "lossless": True,
        "source": listed["naive"]["source"],
    }
    assert "draft_verify" in specadapt("methods").stdout


def test_json_goes_to_a_file_beside_the_table(specadapt, tmp_path):
    file = tmp_path / "new" / "methods.json"
    result = specadapt("methods", "--json", file)
    assert "naive" in result.stdout
    assert file.read_text().startswith("[")
