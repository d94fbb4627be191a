"""`serve`, `bench http` and `chat` on the real service, started once on a free port."""

import json

import httpx
import pytest
from typer.testing import CliRunner

from ops.boundary import InputError
from ops.main import app
from ops.service import running_service


@pytest.fixture(scope="module")
def service(world, fitted):
    folder, _, bundle = world
    assert fitted
    config = {
        "bundle": str(bundle.path),
        "methods": [{"name": "naive"}, {"name": "ngram"}],
        "layout": "shared",
        "engine": {"dtype": "float32", "max_batch": 2, "max_context": 256},
        "router": {"routing": str(folder / "routing")},
    }
    file = folder / "serve.yaml"
    file.write_text(json.dumps(config))
    with running_service(None, file, None) as address:
        yield address
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{address}/health", timeout=5)


def test_bench_http_times_the_service(specadapt, service, world):
    folder, _, _ = world
    figures = specadapt.json(
        *["bench", "http", "--url", service, "--prompts", folder / "nine.jsonl"],
        *["--max-tokens", 8, "--concurrency", 2],
    )
    assert figures["requests"] == 6
    assert figures["errors"] == 0
    assert figures["ttft_ms_p50"] > figures["overhead_ms_p50"] > 0
    assert figures["tokens_per_s"] > 0
    assert figures["requests_per_s"] > 0
    assert sum(figures["methods"].values()) == 6


def test_bench_http_counts_errors(specadapt, service, tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text('{"id": "long", "prompt": "' + "many words " * 300 + '"}\n')
    result = specadapt(
        *["bench", "http", "--url", service, "--prompts", file, "--json", tmp_path / "out.json"]
    )
    assert json.loads((tmp_path / "out.json").read_text())["errors"] == 1
    assert "long: 400" in result.stderr


def test_chat_shows_method_and_speed(service):
    result = CliRunner().invoke(
        app, ["chat", "--url", service, "--max-tokens", "12"], input="Hello\n\nAnd now?\n/quit\n"
    )
    assert result.exit_code == 0
    footers = [line for line in result.stdout.splitlines() if "tokens/s" in line]
    assert len(footers) == 2
    assert all("naive" in line or "ngram" in line for line in footers)


def test_chat_goes_on_after_an_error(service):
    result = CliRunner().invoke(
        app,
        ["chat", "--url", service, "--max-tokens", "4"],
        input="x" * 3000 + "\nHello\n",
    )
    assert result.exit_code == 0
    assert "400" in result.stderr
    assert sum("tokens/s" in line for line in result.stdout.splitlines()) == 1


def test_a_service_that_cannot_start_says_why(tiny_bundle, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(json.dumps({"router": {"routing": str(tmp_path / "nowhere")}}))
    with (
        pytest.raises(InputError, match=r"ended before it was ready.*nowhere"),
        running_service(None, file, tiny_bundle.path),
    ):
        pass
