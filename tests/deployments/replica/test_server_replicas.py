"""Replicas that forward to vLLM servers: what they need, and what is refused before one starts."""

import asyncio
import socket
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError
from ray.serve.schema import ReplicaRank
from served import service_config
from test_app import changed, deployments, environment

from deployments.app import build
from deployments.artifacts import context_length, copying, exchanged_heads, method_specs
from deployments.configuration import ConfigError
from deployments.metrics import ReplicaMetrics
from deployments.replica import method
from deployments.replica.placement import placed_engine
from schemas import AppConfig, DecodeRequest
from schemas.config import OpenAIConfig
from workers.loader import load_engine
from workers.vllm_engine import versions

METHODS = ("vllm_naive", "vllm_eagle3", "vllm_adaptive")
URLS = ("http://a:8000/v1", "https://b/v1")


@pytest.fixture(scope="module")
def config(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("servers")
    servers = {"openai": {"urls": URLS, "api_key_file": "key"}, "max_context": 100_000}
    two = {"min_replicas": 2, "max_replicas": 2}
    return service_config(
        folder, tiny_bundle, METHODS, layout="shared", engine=servers, shared={"name": "s", **two}
    )


def test_no_vllm_and_no_head_is_needed_and_each_replica_has_a_server(config, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: None)
    made = deployments(build(config))["shared"]
    assert made.num_replicas == 2
    assert not [name for name in environment(made) if name.startswith(("VLLM", "LD_PRELOAD"))]
    specs = method_specs(config, METHODS)
    for rank, url in enumerate(URLS):
        assert placed_engine(config.shared, specs, config.engine, rank).openai.urls == (url,)
    [given, *_] = made.init_args
    assert given.engine.openai.api_key_file.is_absolute()


def test_a_proxy_that_cannot_be_used_is_refused(config, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5h://127.0.0.1:1080")
    with pytest.raises(ConfigError, match=r"^the proxy in ALL_PROXY.*httpx\[socks\]"):
        build(config)
    monkeypatch.setenv("NO_PROXY", ",".join(urlsplit(url).hostname for url in URLS))
    build(config)


def test_what_servers_do_not_do_is_not_asked_of_them(config, tiny_bundle):
    assert copying(config) == frozenset()
    assert exchanged_heads(config, tiny_bundle) == {}
    engine = config.engine.model_copy(update={"max_context": 300, "kv_slots": 256})
    assert context_length(tiny_bundle, engine) == 300


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"layout": "per_method"}, "layout: must be shared with engine.openai, got per_method"),
        ({"shared": {"max_replicas": 3}}, "shared: set min_replicas and max_replicas to 2"),
    ],
)
def test_a_configuration_that_does_not_fit_servers_is_refused(config, sections, message):
    with pytest.raises(ValidationError, match=message):
        changed(config, **sections)


WRONG = (
    *("a:8000/v1", "http://a:8000", "http:///v1", "http://a:b/v1", "http://a:99999/v1"),
    *("http://[::1/v1", "http://a b/v1", "http://a/?b=/v1", "http://user:secret@a/v1"),
)


@pytest.mark.parametrize("urls", [*((url,) for url in WRONG), ("http://a/v1",) * 2, ()])
def test_addresses_are_distinct_and_end_with_the_version(urls):
    with pytest.raises(ValidationError, match="urls"):
        OpenAIConfig(urls=urls)


def test_methods_of_other_engines_are_named(config):
    mixed = AppConfig.model_validate(
        config.model_dump() | {"methods": [{"name": "vllm_naive"}, {"name": "naive"}]}
    )
    with pytest.raises(ConfigError, match="servers decode methods of engine vllm only"):
        build(mixed)


class Here(method.MethodReplica):
    """A replica in this process that has what its server and its reports need."""

    def __init__(self, config, bundle):
        self._config, self._replica = config, "r"
        specs = method_specs(config, METHODS)
        self._settings = placed_engine(config.shared, specs, config.engine)
        self._engine = load_engine(specs, bundle, self._settings)
        self._application, self._refused_heads, self._warm = "app", {}, False
        self._leaves = False
        self._metrics, self._heads, self._measured = ReplicaMetrics("r"), method.HeadTally(), set()

    def __del__(self):
        self._engine.close()


@pytest.fixture
def unanswered(config):
    """The configuration with two servers that do not answer."""
    urls = []
    for _ in URLS:
        with socket.create_server(("127.0.0.1", 0)) as free:
            urls.append(f"http://127.0.0.1:{free.getsockname()[1]}/v1")
    engine = config.engine.model_copy(update={"openai": OpenAIConfig(urls=urls)})
    return config.model_copy(update={"engine": engine})


async def test_a_replica_takes_the_server_of_its_rank(unanswered, tiny_bundle):
    """Ray Serve ranks anew once a replaced replica has ended its last answer."""
    replica, engines = Here(unanswered, tiny_bundle), []
    for rank in (0, 1, 1):
        given = ReplicaRank(rank=rank, node_rank=0, local_rank=rank)
        await replica.reconfigure(None, rank=given)
        assert replica._settings.openai.urls == (unanswered.engine.openai.urls[rank],)
        engines.append(replica._engine)
    assert engines[0] is not engines[1]
    assert engines[1] is engines[2]
    request = DecodeRequest(request_id="a", method="vllm_naive", prompt_token_ids=(1,))
    [failed] = [chunk async for chunk in engines[2].generate(request)]
    assert failed.error.startswith(unanswered.engine.openai.urls[1])


async def test_a_replica_says_that_its_server_has_not_started(unanswered, tiny_bundle, monkeypatch):
    """Requests prefer a replica without reports to one with work."""
    reports = asyncio.Queue()

    class Board:
        class report:  # noqa: N801
            remote = reports.put

    monkeypatch.setattr(method, "load_board", lambda *_: Board)
    replica = Here(unanswered, tiny_bundle)
    task = asyncio.create_task(replica._report_forever())
    try:
        async with asyncio.timeout(30):
            told = [await reports.get() for _ in range(2)]
    finally:
        task.cancel()
    assert [report.healthy for report in told] == [False, False]
