"""A running application, as the end-to-end tests look at it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
from ray import serve
from ray._private import state as ray_state

from deployments.app import build
from deployments.learning.feedback import feedback_actor
from deployments.run import APPLICATION
from schemas import AppConfig

START_SECONDS = 300.0
CALL_SECONDS = 60.0
"""Within them anything answers, on a machine with other work too."""


HTTP = httpx.Client(
    timeout=CALL_SECONDS,
    limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
)
"""For all requests, each over a new connection: to make a client takes 60 ms of a core."""


def until(condition: Callable[[], Any], seconds: float = CALL_SECONDS) -> Any:
    """The condition's first true value; fails where there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def pids(method: str) -> list[int]:
    """Return the processes of a method's replicas."""
    handle = serve.get_deployment_handle(method, APPLICATION)
    placements = handle.broadcast("placement").results(timeout_s=CALL_SECONDS)
    return [placement["pid"] for placement in placements]


@contextmanager
def throttled(processes: Sequence[int], share: float, period: float = 0.3) -> Iterator[None]:
    """Let processes run for `share` of every `period` seconds only, until the block ends."""
    over = threading.Event()

    def send(number: int) -> None:
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def throttle() -> None:
        while not over.wait(share * period):
            send(signal.SIGSTOP)
            over.wait((1.0 - share) * period)
            send(signal.SIGCONT)

    thread = threading.Thread(target=throttle, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class Service:
    """A running application."""

    config: AppConfig
    url: str

    def method(self, name: str, call: str, *args: Any) -> Any:
        """The result of a method deployment's own call, which no HTTP path reaches."""
        handle = serve.get_deployment_handle(name, APPLICATION)
        return getattr(handle, call).remote(*args).result(timeout_s=CALL_SECONDS)

    def feedback(self) -> Any:
        return feedback_actor(APPLICATION, self.config)

    def feedback_pid(self) -> int:
        """The process of this service's own feedback actor.

        Actors of services that other tests stopped may live on until their lease ends.
        """
        return int(ray_state.actors(self.feedback()._actor_id.hex())["Pid"])

    def routing(self) -> dict[str, Any]:
        return HTTP.get(f"{self.url}/v1/routing").json()

    def load(self, method: str) -> dict[str, Any]:
        """The last report of the method's replica."""
        return next(load for load in self.routing()["loads"] if method in load["methods"])

    def idle(self) -> bool:
        """Whether every replica has reported, and has nothing to do."""
        loads = self.routing()["loads"]
        hosts = {method for load in loads for method in load["methods"]}
        return hosts == {method.name for method in self.config.methods} and not any(
            load["running"] or load["waiting"] or load["outstanding_tokens"] for load in loads
        )

    def chat(self, text: str = "Write a Python function", **fields: Any) -> httpx.Response:
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
        return HTTP.post(f"{self.url}/v1/chat/completions", json=body | fields)

    def step_seconds(self, model: str, tokens: int = 8) -> float:
        """At most so long is a step of the model now: what a whole answer takes, by its tokens.

        Times between a stream's events would not do: to a client that has been held up, many come
        at once.
        """
        clock = time.monotonic()
        answer = self.chat(model=model, max_tokens=tokens, ignore_eos=True)
        assert answer.is_success, answer.text
        return (time.monotonic() - clock) / tokens

    def stream(
        self, stack: ExitStack, model: str, headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Iterator[str]:
        """The data lines of a streamed answer, for as long as the stack is open."""
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "ignore_eos": True}
        asked = HTTP.stream(
            "POST",
            f"{self.url}/v1/chat/completions",
            json={"model": model} | body | fields,
            headers=headers,
        )
        lines = stack.enter_context(asked).iter_lines()
        return (line for line in lines if line.startswith("data: "))


def deployed(config: AppConfig) -> Service:
    """The service on `config`'s port, once every method that is to have a replica has one."""
    serve.start(http_options={"host": "127.0.0.1", "port": config.http.port})
    serve.run(build(config), name=APPLICATION)
    service = Service(config, f"http://127.0.0.1:{config.http.port}")

    expected = {method.name for method in config.methods if method.min_replicas}

    def ready() -> bool:
        health = HTTP.get(f"{service.url}/health")
        return health.is_success and expected <= set(health.json()["methods"])

    until(ready, START_SECONDS)
    return service
