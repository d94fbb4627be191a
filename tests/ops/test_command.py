"""What holds for every command: help with an example, and bad input as one line."""

import socket
import subprocess
import sys

import pytest

from ops.common.boundary import TRACEBACK_VARIABLE

COMMANDS = [
    *(["methods"], ["generate"], ["profile"], ["fit"], ["evaluate"], ["trace"], ["report"]),
    *(["routing", "explain"], ["routing", "export"], ["keys", "create"], ["serve"], ["chat"]),
    *(["export-encoder"], ["bench", "decode"], ["bench", "serve"]),
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
        (["routing", "history", "--url", "http://127.0.0.1:9"], "--url: no service answers at"),
        (["bench", "decode", "--dtype", "float8"], "'--dtype'"),
    ],
)
def test_bad_input_is_one_line(specadapt, arguments, expected):
    assert expected in specadapt.refusal(*arguments)


def test_a_wrong_configuration_names_its_file_and_field(specadapt, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("engine: {threads: 0}")
    line = specadapt.refusal("serve", "--config", file)
    assert f"{file}: engine.threads: Input should be greater than or equal to 1" in line


def test_a_taken_port_is_one_clear_line(specadapt, served_config, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(served_config.model_dump_json())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = specadapt.refusal("serve", "--config", file, "--port", port)
    assert f"127.0.0.1:{port}" in line
    assert "--port" in line


def test_a_traceback_is_there_for_who_asks(specadapt, monkeypatch):
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    with pytest.raises(ValueError, match="unknown method"):
        specadapt("generate", "--method", "nope", "--prompt", "x")


def test_json_goes_to_a_file_beside_the_table(specadapt, tmp_path):
    file = tmp_path / "new" / "methods.json"
    result = specadapt("methods", "--json", file)
    assert "naive" in result.stdout
    assert file.read_text().startswith("[")


def test_a_terminated_command_stops_what_it_has_started():
    program = """
import signal
import ops.main
def command():
    try:
        print("running", flush=True)
        signal.pause()
    finally:
        print("stopped", flush=True)
ops.main.app = command
ops.main.main()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "running\n"
        process.terminate()
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 143
