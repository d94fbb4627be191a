"""Ray Serve's traces hold our spans, from the proxy to the engine."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from running_service import HTTP, START_SECONDS, until
from served import service_config

from ops.common.running_service import free_port

pytestmark = pytest.mark.slow
EXPORTER = "ray.serve._private.tracing_utils:default_tracing_exporter"
"""Writes spans to files beside Ray Serve's logs."""
CALLERS = "4bf92f3577b34da6a3ce929d0e0e4736"
"""The trace that the caller is in."""


def test_a_requests_trace_goes_from_the_proxy_to_the_engine(tiny_bundle, tmp_path, monkeypatch):
    port = free_port()
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"), http={"port": port})
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(config.model_dump(mode="json")))
    monkeypatch.setenv("RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH", EXPORTER)
    monkeypatch.setenv("RAY_SERVE_TRACING_SAMPLING_RATIO", "1.0")
    url = f"http://127.0.0.1:{port}"

    def ready():
        try:
            return HTTP.get(f"{url}/health", timeout=5.0).is_success
        except httpx.TransportError:
            return False

    command = [sys.executable, "-m", "ops", "serve", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as service:
        try:
            until(ready, START_SECONDS)
            body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
            answer = HTTP.post(
                f"{url}/v1/chat/completions",
                json=body | {"max_tokens": 8},
                headers={"traceparent": f"00-{CALLERS}-00f067aa0ba902b7-01"},
                timeout=60.0,
            )
            assert answer.is_success
            found = until(lambda: whole_trace(spans()))
        finally:
            service.send_signal(signal.SIGINT)
            service.communicate(timeout=START_SECONDS)
    assert {span["trace_id"] for span in found} == {CALLERS}


def spans():
    """Name and trace of every span in the newest session's files."""
    files = Path("/tmp/ray/session_latest/logs/serve/spans").glob("*")
    text = "\n".join(file.read_text() for file in files)
    pattern = r'"name": "([^"]+)",\s*"context": \{\s*"trace_id": "0x([0-9a-f]{32})"'
    return [{"name": name, "trace_id": found} for name, found in re.findall(pattern, text)]


def whole_trace(all_of_them):
    """The spans of the trace that has ours, once they are all there."""
    ours = {f"specadapt.{name}" for name in ("decide", "queue", "prefill", "decode")}
    for trace in {span["trace_id"] for span in all_of_them}:
        members = [span for span in all_of_them if span["trace_id"] == trace]
        if ours <= {span["name"] for span in members} and len(members) > len(ours):
            return members
    return None
