"""No request slows another: streams go on while bodies are read that are meant to harm."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from running_service import CALL_SECONDS, HTTP, Service, until
from served import service_config

CALM_CHUNKS = 200
"""Of a stream that is alone, to compare with."""
BOUND_SECONDS = 0.3
"""What a bomb may add to the longest gap of a stream."""
DIGITS = "7" * 60_000
"""Each is a token: to tokenise them takes seconds."""
MESSAGES = [{"role": "user", "content": DIGITS}]
TURNS = [
    {"role": role, "content": DIGITS[:30_000]} for _ in range(6) for role in ("user", "assistant")
]
EMPTY = '{"x":[' + "[]," * 630_000 + "[]]}"
BOMBS = {
    "chat": ("/v1/chat/completions", {"messages": MESSAGES}, 400),
    "completion": ("/v1/completions", {"prompt": DIGITS}, 400),
    "tokens of a text": ("/tokenize", {"prompt": DIGITS}, 200),
    "tokens of a conversation": ("/v1/messages/count_tokens", {"messages": MESSAGES}, 400),
    "shortened": (
        "/v1/responses",
        {"input": [*TURNS, {"role": "user", "content": "hi"}], "truncation": "auto"},
        200,
    ),
    "containers": ("/v1/chat/completions", {"messages": [], "chat_template_kwargs": "EMPTY"}, 400),
    "containers of a schema": ("/v1/responses", {"input": "hi", "text": "EMPTY"}, 400),
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(deploy, tiny_bundle, port, tmp_path_factory) -> Service:
    return deploy(
        service_config(
            tmp_path_factory.mktemp("bombs"),
            tiny_bundle,
            ("naive",),
            http={"port": port, "ingress_num_cpus": 0},
            engine={"max_context": 2048},
        )
    )


@contextmanager
def heartbeat(service: Service) -> Iterator[list[float]]:
    """Stream answers all the time; the list has the seconds between chunks, the newest last."""
    gaps, ended = list[float](), threading.Event()

    def stream() -> None:
        while not ended.is_set():
            with ExitStack() as stack:
                lines = service.stream(stack, "tiny", max_tokens=1500)
                next(lines)
                last = time.monotonic()
                for _ in lines:
                    now = time.monotonic()
                    gaps.append(now - last)
                    last = now
                    if ended.is_set():
                        break

    thread = threading.Thread(target=stream)
    thread.start()

    try:
        yield gaps
    finally:
        ended.set()
        thread.join(CALL_SECONDS)


def post(service: Service, path: str, fields: dict) -> int:
    body = {"model": "tiny", "max_tokens": 4} | fields
    if path == "/v1/responses":
        body["max_output_tokens"] = body.pop("max_tokens")
    if path in ("/tokenize", "/v1/messages/count_tokens"):
        del body["max_tokens"]
    text = HTTP.build_request("POST", service.url + path, json=body)
    content = text.read().replace(b'"EMPTY"', EMPTY.encode())
    return HTTP.post(service.url + path, content=content).status_code


@pytest.mark.parametrize("name", BOMBS)
def test_a_stream_goes_on_beside_a_bomb(service, name):
    """Longer than it does alone by less than the bound: the machine may have other work."""
    path, fields, status = BOMBS[name]
    added = []
    with heartbeat(service) as gaps:
        for _ in range(3):  # one disturbance from outside is no failure
            gaps.clear()
            until(lambda: len(gaps) > CALM_CHUNKS)
            calm = max(gaps)
            gaps.clear()
            assert post(service, path, fields) == status
            until(lambda: gaps)  # it may still be in the gap that the bomb has made
            added.append(max(gaps) - calm)
            print(f"{name}: {calm:.3f} s alone, {added[-1]:+.3f} s")
            if added[-1] < BOUND_SECONDS:
                return
    pytest.fail(f"the longest gap grew by {added} s")


def schema(size: int) -> dict:
    wrapped = {"name": "a", "schema": {"enum": [f"{i:07}" for i in range(size)]}}
    return {"type": "json_schema", "json_schema": wrapped}


def test_a_small_schema_does_not_wait_for_large_ones(service):
    """Forty of 159 KB are being checked, each for a second."""
    answers: list[int] = []

    def ask(number: int) -> None:
        answers.append(service.chat(response_format=schema(14_000 + number)).status_code)

    assert service.chat(response_format=schema(1)).status_code == 200  # the helpers have started
    bombs = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for bomb in bombs:
        bomb.start()
    until(lambda: len(answers) > 1)
    done = len(answers)
    for number in range(2, 7):
        assert service.chat(response_format=schema(number)).status_code == 200
    assert len(answers) < 40, "the large ones were still being checked"
    print(f"{len(answers) - done} large ones were checked before five small ones")
    for bomb in bombs:
        bomb.join()
    assert set(answers) <= {200, 400, 429}
