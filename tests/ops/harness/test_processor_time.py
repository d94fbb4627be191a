"""Whose processor time it is."""

import sys
from collections import Counter

import pytest

from ops.bench.http.other_server import other_server
from ops.harness.processor_time import per_request_ms, processor_seconds, role_of

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["ray::ServeReplica:specadapt:ingress"], "ingress"),
        (["ray::ServeReplica:specadapt:naive.handle_request_with_rejection"], "naive"),
        (["ray::ProxyActor.receive_asgi_messages"], "ProxyActor"),
        (["/usr/lib/ray/raylet", "--raylet_socket_name=x"], "raylet"),
        (["/usr/bin/python3", "-m", "ops", "serve"], "ops"),
        (["/usr/bin/python3", "-u", "/usr/lib/ray/log_monitor.py"], "log_monitor"),
        (["VLLM::EngineCore"], "VLLM::EngineCore"),
    ],
)
def test_a_process_is_named_by_its_command_line(words, role):
    assert role_of(words) == role


@pytest.mark.slow
def test_the_seconds_of_a_server_that_was_started_here(tmp_path):
    script = tmp_path / "lone.py"
    script.write_text(SERVER)
    with other_server([sys.executable, str(script)], {}) as url:
        assert processor_seconds(url).keys() == {"lone"}
    assert not processor_seconds(url)


def test_milliseconds_per_request():
    taken = per_request_ms(Counter(proxy=0.1, ingress=0.5, idle=0.0), requests=10)
    assert taken == pytest.approx({"ingress": 50.0, "proxy": 10.0, "idle": 0.0})
    assert list(taken) == ["ingress", "proxy", "idle"]
