"""`bench http` and `chat` over a real socket and engine, and the service they start on Ray."""

import asyncio
import json
import threading

import httpx
import pytest
import uvicorn
import yaml
from served import service_config
from typer.testing import CliRunner

from deployments.api.embeddings import Embeddings
from deployments.api.prompt_reader import PromptReader
from deployments.api.routes import HttpApi
from deployments.artifacts import embedding, portfolios, served_encoder, served_table
from deployments.learning.feedback import Feedback
from deployments.learning.link import FeedbackLink
from deployments.metrics import Metrics
from deployments.replica.method import merged
from deployments.request.answer import Answerer
from deployments.request.refusals import Refusals
from ops.cli.boundary import InputError
from ops.main import app
from ops.service.running import free_port, running_service
from workers.loader import load_engine

METHODS = ("naive", "ngram")


@pytest.fixture(scope="module")
def config(tmp_path_factory, tiny_bundle):
    return service_config(tmp_path_factory.mktemp("service"), tiny_bundle, METHODS)


@pytest.fixture(scope="module")
def url(config, tiny_bundle):
    """The ingress's own application on a socket, its engine in the same process."""
    port = free_port()
    engine = load_engine(METHODS, tiny_bundle, config.engine)
    servers = []
    ready = threading.Event()

    async def serve():
        link = FeedbackLink(served_table(config), connect, 1e-6, 60.0, Metrics())
        await link.exchange()
        streams = dict.fromkeys(METHODS, lambda r, _whole: merged(engine.generate(r), lambda: 0.0))
        encoder = served_encoder(config)
        refusals = Refusals(portfolios(config))
        answerer = Answerer(streams, link, config.router, embedding(encoder), Metrics(), refusals)
        reader = PromptReader(tiny_bundle, METHODS, config.engine)
        embeddings, limit = Embeddings(encoder), config.http.max_body_bytes
        api = HttpApi(reader, answerer, embeddings, link, Metrics(), limit).app()
        server = uvicorn.Server(uvicorn.Config(api, port=port, log_level="warning"))
        servers.append(server)
        ready.set()
        await server.serve()

    async def connect():
        feedback = Feedback(config)
        await feedback.report(engine.load())
        return feedback

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(300)
    yield f"http://127.0.0.1:{port}"
    servers[0].should_exit = True
    thread.join(30)
    engine.close()


@pytest.fixture
def listening(url):
    """The address, once something listens there."""
    transport = httpx.HTTPTransport(retries=10)  # with growing pauses, about a minute in all
    with httpx.Client(transport=transport) as client:
        assert client.get(f"{url}/v1/models").status_code == httpx.codes.OK
    return url


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
    assert figures["methods"].keys() <= {*METHODS}
    assert figures["whole_tokens_per_s"] > 0
    assert figures["streaming_cost"] < 1
    assert "ingress_over_bare_ms_p50" not in figures, "nothing to compare a foreign service with"


def test_bench_http_pins_a_method(specadapt, listening, prompts_file):
    figures = specadapt.json(
        *["bench", "http", "--url", listening, "--prompts", prompts_file, "--method", "ngram"],
        *["--limit", 4, "--max-tokens", 4],
    )
    assert figures["methods"] == {"ngram": 4}
    assert "streaming_cost" not in figures, "one at a time loses nothing"


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


def test_without_a_url_a_service_is_started(specadapt, config, prompts_file, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json") | {"layout": "shared"}))
    figures = specadapt.json(
        *["bench", "http", "--config", file, "--prompts", prompts_file],
        *["--limit", 2, "--max-tokens", 4],
    )
    assert figures["requests"] == 2
    assert figures["errors"] == 0
    assert figures["settings"]["started_by"] == "this command"
    assert figures["bare_overhead_ms_p50"] > 0
    low, high = figures["ingress_over_bare_ms_p50_ci95"]
    assert low <= figures["ingress_over_bare_ms_p50"] <= high


@pytest.mark.slow
def test_bench_balance_loads_two_pinned_replicas_and_then_the_methods(
    specadapt, config, prompts_file, tmp_path
):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    figures = specadapt.json(
        *["bench", "balance", "--config", file, "--method", "ngram", "--prompts", prompts_file],
        *["--shares", "0.5", "--requests", 40, "--max-tokens", 60],
    )
    assert figures["settings"]["method"] == "ngram"
    [load] = figures["replicas"]["loads"]
    assert load["errors"] == 0
    assert load["methods"] == {"ngram": 40}
    assert len(load["mean_outstanding_tokens"]) == 2
    [load] = figures["methods"]["loads"]
    assert load["methods"].keys() <= {*METHODS}
    assert sum(load["reasons"].values()) == pytest.approx(1.0)


def test_a_service_that_cannot_start_says_why(tiny_bundle, tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump({"router": {"routing": str(tmp_path / "nowhere")}}))
    with (
        pytest.raises(InputError, match=r"ended before it was ready.*nowhere"),
        running_service(None, file, tiny_bundle.path),
    ):
        pass
