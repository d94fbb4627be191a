"""`bench http` and `chat` over a real socket and engine, and the service they start on Ray."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from ops.harness.boundary import InputError
from ops.harness.running_service import running_service
from ops.main import app

METHODS = {"naive", "ngram"}


def test_bench_http_times_the_service(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "http", "--url", listening, "--prompts", prompts_file],
        *["--limit", 6, "--max-tokens", 8, "--concurrency", 2],
    )
    assert figures["requests"] == 6
    assert figures["errors"] == 0
    assert figures["ttft_ms_p50"] > figures["overhead_ms_p50"] > 0
    assert figures["tokens_per_s"] > 0
    assert figures["requests_per_s"] > 0
    assert sum(figures["methods"].values()) == 6
    assert figures["methods"].keys() <= METHODS


def test_bench_http_pins_a_method(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "http", "--url", listening, "--prompts", prompts_file, "--method", "ngram"],
        *["--limit", 4, "--max-tokens", 4],
    )
    assert figures["methods"] == {"ngram": 4}


def test_bench_http_reads_less_of_later_turns(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "http", "--url", listening, "--prompts", prompts_file, "--turns", 3],
        *["--limit", 2, "--max-tokens", 4, "--method", "naive"],
    )
    assert (figures["requests"], figures["errors"], figures["settings"]["turns"]) == (8, 0, 3)
    turns = figures["by_turn"]
    assert [one["turn"] for one in turns] == ["1", "2", "3", "3, nothing cached"]
    assert all(one["answers"] == 2 and one["ttft_ms_p50"] > 0 for one in turns)
    cached = [one["cached"] for one in turns]
    assert cached[2] > 0.3 > 0.0 == cached[3]


def test_bench_http_counts_errors(specadapt, listening, tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text('{"id": "long", "prompt": "' + "many words " * 600 + '"}\n')
    result = specadapt(
        *["bench", "http", "--url", listening, "--prompts", file],
        *["--json", tmp_path / "out.json"],
    )
    assert json.loads((tmp_path / "out.json").read_text())["errors"] == 1
    assert "long: 400" in result.stderr


def test_chat_shows_method_and_speed(listening):
    said = "Hello\n\nAnd now?\n/quit\n"
    result = CliRunner().invoke(app, ["chat", "--url", listening, "--max-tokens", "12"], said)
    assert result.exit_code == 0
    footers = [line for line in result.stdout.splitlines() if "tokens/s" in line]
    assert len(footers) == 2
    assert all("naive" in line or "ngram" in line for line in footers)


def test_chat_goes_on_after_an_error(listening):
    said = "many words " * 600 + "\nHello\n"
    result = CliRunner().invoke(app, ["chat", "--url", listening, "--max-tokens", "4"], said)
    assert result.exit_code == 0
    assert "400" in result.stderr
    assert sum("tokens/s" in line for line in result.stdout.splitlines()) == 1


@pytest.mark.slow
def test_without_a_url_a_service_is_started(specadapt, served_config, prompts_file, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(served_config.model_dump(mode="json") | {"layout": "shared"}))
    figures = specadapt.json(
        *["bench", "http", "--config", file, "--prompts", prompts_file],
        *["--limit", 2, "--max-tokens", 4],
    )
    assert figures["requests"] == 2
    assert figures["errors"] == 0
    assert figures["settings"]["started_by"] == "this command"
    assert {"ingress", "naive", "ngram"} <= figures["processor_ms"].keys()
    assert figures["overhead_ms_p50"] > 0


def test_a_service_that_cannot_start_says_why(tiny_bundle, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump({"router": {"routing": str(tmp_path / "nowhere")}}))
    with (
        pytest.raises(InputError, match=r"ended before it was ready.*nowhere"),
        running_service(None, file, tiny_bundle.path),
    ):
        pass
