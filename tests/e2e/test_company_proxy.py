"""The service on a machine whose environment names a proxy, which refuses every connection."""

import os
import subprocess
import sys

import pytest
from served import service_config

from ops.common.running_service import free_port, started_service
from workers.http_clients import client

pytestmark = pytest.mark.slow
HTTP = f"http://127.0.0.1:{free_port()}"
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.mark.parametrize(
    "proxy",
    [
        {"HTTP_PROXY": HTTP},
        {"http_proxy": HTTP, "no_proxy": "localhost,127.0.0.1"},
        {"ALL_PROXY": "socks5h://127.0.0.1:1080", "NO_PROXY": "127.0.0.1"},
    ],
    ids=["HTTP_PROXY", "http_proxy", "ALL_PROXY"],
)
def test_it_serves_as_without(tiny_bundle, tmp_path, monkeypatch, proxy):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in proxy.items():
        monkeypatch.setenv(name, value)
    config = service_config(tmp_path, tiny_bundle, ("naive", "ngram"))
    with started_service(config) as address, client(address, timeout=60.0) as service:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
        answer = service.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert service.get("/-/healthz").status_code == 200
        assert service.get("/-/routes").status_code == 404
        command = [sys.executable, "-m", "ops", "routing", "history", "--url", address]
        asked = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
        assert "--key: /admin needs an admin key" in asked.stderr
