"""`specadapt serve`: the whole service in the foreground."""

import atexit
import io
import logging
import math
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from deployments import transport
from deployments.actors import DRAFTERS, FEEDBACK, LOADS, running_actors
from deployments.app import build
from deployments.artifacts import context_length
from deployments.configuration import resolved
from deployments.guard import haproxy
from deployments.guard.proxy import IMPORT_PATH
from schemas import AppConfig
from workers.bundle import load_bundle
from workers.http_clients import client

APPLICATION = "specadapt"
READY_SECONDS = 300.0
_ORDERLY_STOP_SECONDS = 20.0
_OBJECT_STORE_BYTES = 256 * 1024 * 1024
_OF_RAY = {
    # A proxy that takes longer than this to start is killed and started again: on a busy machine
    # five seconds, Ray's default, are too few forever.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # One that has died is replaced after three failed checks: by Ray's default, 10 s apart,
    # no client can connect for up to half a minute.
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": IMPORT_PATH,
    # A replica whose engine has failed has no responses to finish.
    "RAY_SERVE_FORCE_STOP_UNHEALTHY_REPLICAS": "1",
    # Serve's controller checks its replicas every 0.1 s by default, which takes 15% of a core.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    # By default Ray lowers the priority of its workers. Responses then take twice as long while
    # other programs use the cores.
    "RAY_worker_niceness": "0",
    # What fails while it loads a model fails again.
    "RAY_SERVE_MAX_PER_REPLICA_RETRY_COUNT": "1",
    **transport.PROXY,
}
"""Environment of a local Ray, as far as this process's own does not say otherwise."""


_RAISED = re.compile(r"^((?:\w+\.)*)(\w*(?:Error|Exception): )", re.MULTILINE)
"""Beginning of the last line of a traceback: the exception's module and its class."""


class StopRequested(BaseException):
    """SIGINT or SIGTERM arrived."""


Say = Callable[[str], None]


class PortTakenError(ValueError):
    """Another program listens where the service should; the message names the port and the fix."""


class StartError(ValueError):
    """This machine cannot run the configuration; the message says what a replica reports."""


def say(line: str) -> None:
    """Print a line without buffering, also to a file."""
    print(line, flush=True)


def serve_forever(config: AppConfig, stage: Say) -> None:
    """Run the service until SIGINT or SIGTERM, then stop everything that was started here.

    stage: prints what the start does.

    Start a local Ray, or join the one that RAY_ADDRESS names (whose proxies must listen on this
    machine at `http.port`). Raises PortTakenError, ConfigError or StartError before anything is
    announced.
    """
    config = with_free_port(resolved(config))
    application = build(config)
    try:
        with _signals(_raise_stop):
            stage("starting Ray")
            _start_ray(config)
        with _signals(_raise_stop):  # once more: ray.init installs handlers of its own
            serve.start(http_options={"host": config.http.host, "port": config.http.port})
            stage(f"loading {config.bundle.name}")
            _deploy(application)
            stage("warming up")
            _wait_ready(_address(config))
            stage("ready")
            _announce(config)
            while True:
                signal.pause()
    except StopRequested:
        say("stopping")
    finally:
        # Ray reports the actors that it ends as failures.
        with _signals(signal.SIG_IGN), redirect_stdout(io.StringIO()):
            _stop()


def with_free_port(config: AppConfig) -> AppConfig:
    """Return the configuration with the port the service will have: port 0 becomes a free one.

    Raises PortTakenError; Ray's proxy would share a taken port silently (SO_REUSEPORT).
    """
    host, port = config.http.host, config.http.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTakenError(
                f"http.port: cannot listen on {host}:{port} ({error.strerror}); "
                "stop the other program or choose another port with --port"
            ) from error
        port = probe.getsockname()[1]
    return config.model_copy(update={"http": config.http.model_copy(update={"port": port})})


def needed_cpus(config: AppConfig) -> float:
    """Return the logical CPUs of the smallest number of replicas."""
    replicas = (config.shared,) if config.layout == "shared" else config.methods
    methods = sum(max(1, r.min_replicas) * r.num_cpus for r in replicas)
    return methods + config.http.ingress_replicas * config.http.ingress_num_cpus


def start_local_ray(cpus: int, gpus: int | None = None) -> None:
    """Start a local Ray that logs little. cpus and gpus: what it may schedule, not hardware.

    Without `gpus` Ray uses those it finds on the machine. Raises StartError where it fails.
    """
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)  # that it is on
    # A signal to the whole process group (Ctrl-C, `timeout`, systemd) must leave Ray standing
    # until this process has asked it to stop. Its processes inherit what is blocked here; Ray
    # does the same for SIGINT, and ends what does not listen to SIGTERM by SIGKILL.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with _environment({**_OF_RAY, **_haproxy_settings()}):
            ray.init(
                address="local",
                num_cpus=cpus,
                num_gpus=gpus,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                logging_level=logging.WARNING,
                log_to_driver=False,
            )
    except Exception as error:  # Ray raises this class itself
        raise StartError(
            f"Ray did not start: {error} On a busy machine try again; Ray's own logs are in "
            "/tmp/ray/session_latest/logs"
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _haproxy_settings() -> dict[str, str]:
    """Return the environment with HAProxy, or nothing where Ray's Python proxy is to run."""
    if not haproxy.available() or os.environ.get("RAY_SERVE_ENABLE_HA_PROXY", "1") != "1":
        return {}
    # A socket's path has at most 108 characters, and TMPDIR may be long.
    folder = tempfile.mkdtemp(prefix="specadapt-", dir="/tmp")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return haproxy.local_settings(Path(folder))


def _start_ray(config: AppConfig) -> None:
    if os.environ.get("RAY_ADDRESS"):
        ray.init(logging_level=logging.WARNING, log_to_driver=False)
    else:
        start_local_ray(max(os.cpu_count() or 1, math.ceil(needed_cpus(config))))


def _deploy(application: serve.Application) -> None:
    try:
        serve.run(application, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        deployments = serve.status().applications[APPLICATION].deployments.values()
        reports = [one.message for one in deployments if "\nError:\n" in one.message]
        raise StartError(cause(reports[0]) if reports else str(error)) from error


def cause(report: str) -> str:
    """Return why a replica did not start, out of Ray Serve's report with its traceback."""
    _, _, said = report.partition("Error:\n")
    raised = [*_RAISED.finditer(said)]
    if not raised:
        return f"a replica's process ended while it loaded the model. Ray says: {said}"
    last = raised[-1]
    ours = last[1].startswith(("workers.", "deployments.")) or last[2] == "ValueError: "
    return said[last.end() if ours else last.start(2) :]


def _wait_ready(address: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    answer = "nothing yet"
    # One client for all: to make one takes 60 ms of a core, which the replicas need.
    with client(address, timeout=5.0) as asking:
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                response = asking.get("/health")
                if response.status_code == httpx.codes.OK:
                    return
                answer = response.text
            time.sleep(0.1)
    raise StartError(f"not ready after {READY_SECONDS:.0f} s; /health says: {answer}")


def _announce(config: AppConfig) -> None:
    address, bundle, engine = _address(config), load_bundle(config.bundle), config.engine
    model, context = bundle.name, context_length(bundle, engine)
    say(f"methods     {', '.join(method.name for method in config.methods)}")
    say(f"context     {context:,} tokens, up to {engine.max_batch} requests in a batch")
    say(f"chat page   {address}/")
    say(f"API base    {address}/v1   (model: {model})")
    say(f"routing     {address}/v1/routing")
    for metrics in _metrics_addresses():
        say(f"metrics     {metrics}")
    say(
        f"try         curl {address}/v1/chat/completions -H 'content-type: application/json' "
        f'-d \'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}\''
    )
    say("Ctrl-C stops everything")


def _metrics_addresses() -> list[str]:
    """Return where Ray exports each node's metrics (on a random port unless one is configured)."""
    return [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"] and node.get("MetricsExportPort", 0) > 0
    ]


def _address(config: AppConfig) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(config.http.host, config.http.host)
    return f"http://{host}:{config.http.port}"


def _stop() -> None:
    if not ray.is_initialized():
        return
    # A cluster that answers no more must not keep this process alive.
    orderly = threading.Thread(target=_stop_application, daemon=True)
    orderly.start()
    orderly.join(_ORDERLY_STOP_SECONDS)
    ray.shutdown()


def _stop_application() -> None:
    with suppress(Exception):  # whatever fails here, what runs is about to be ended
        serve.shutdown()  # type: ignore[no-untyped-call]
        for role in (FEEDBACK, LOADS, DRAFTERS):
            for actor in running_actors(role, APPLICATION):
                ray.kill(actor, no_restart=True)


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set variables inside the block that are not set, and those that keep proxies out. Processes
    that start there keep them."""
    before = dict(os.environ)
    os.environ.update({**defaults, **before})
    transport.bypass_proxies()
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Handle SIGINT and SIGTERM by `handler` inside the block."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _raise_stop(number: int, _: Any) -> None:
    raise StopRequested(signal.Signals(number).name)
