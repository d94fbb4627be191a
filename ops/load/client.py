"""An open-loop client: each request is sent when it is due, whatever became of the others."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from ops.load.arrivals import Floats
from ops.load.policies import Question
from ops.load.runs import Outcome
from workers.http_clients import async_client

PATIENCE_SECONDS = 600.0
QUIET_SECONDS = 60.0
METHOD_HEADER = "x-specadapt-method"
UNCUT = {"top_p": 1.0}
"""What a bundle's own sampling defaults must not change: answers were recorded without."""
REFUSED = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)


class AnswerError(RuntimeError):
    """An answer that is neither one nor a refusal; the message is the service's own."""


@dataclass(frozen=True)
class Ask:
    """A question to the service; `method` pins one."""

    question: Question
    method: str | None = None

    def body(self, model: str) -> dict[str, Any]:
        """The request's body, for an answer in one piece."""
        features = self.question.features
        return {
            "model": model if self.method is None else f"{model}:{self.method}",
            "messages": [{"role": "user", "content": self.question.text}],
            "max_tokens": features.max_tokens,
            "temperature": features.temperature,
            **UNCUT,
        }


def client(url: str, key: str = "") -> httpx.AsyncClient:
    """Return a client without a bound on its connections: a bound would be a queue of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return async_client(url, timeout=PATIENCE_SECONDS, limits=limits, headers=headers)


async def drive(
    service: httpx.AsyncClient,
    model: str,
    asks: Sequence[Ask],
    arrivals: Floats,
    advance: Callable[[], None],
) -> list[Outcome | None]:
    """Each ask's outcome [n], sent at its arrival [n]; None where the service refused it.

    Seconds are the client's, from when the request was due. Raises AnswerError.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def one(ask: Ask, arrival: float) -> Outcome | None:
        due = started + arrival
        await asyncio.sleep(max(0.0, due - loop.time()))
        outcome = await answered(service, ask.body(model), due, started)
        advance()
        return outcome

    return await asyncio.gather(*(one(a, float(t)) for a, t in zip(asks, arrivals, strict=True)))


async def answered(
    service: httpx.AsyncClient, body: dict[str, Any], due: float, started: float
) -> Outcome | None:
    """The outcome of one request that was due at `due`, on a run's clock from `started` on."""
    response = await service.post("/v1/chat/completions", json=body)
    now = asyncio.get_running_loop().time()
    if response.status_code in REFUSED:
        return None
    if response.status_code != httpx.codes.OK:
        raise AnswerError(f"{response.status_code}: {response.text[:300]}")
    usage = response.json()["usage"]
    seconds = now - due
    return Outcome(
        method=response.headers[METHOD_HEADER],
        output_tokens=usage["completion_tokens"],
        # the answer comes in one piece; what the engine decoded after its first token is known
        first_token_seconds=seconds - usage["speculative"]["decode_seconds"],
        seconds=seconds,
        finished_at=now - started,
        outside_seconds=seconds - usage["speculative"]["total_seconds"],
    )


async def until_quiet(service: httpx.AsyncClient, replicas: int) -> None:
    """Wait until `replicas` replicas have reported that they are idle. Raises TimeoutError."""
    async with asyncio.timeout(QUIET_SECONDS):
        known: dict[str, float] | None = None
        while True:
            loads = (await service.get("/v1/routing")).json()["loads"]
            times = {load["replica"]: load["time"] for load in loads}
            known = times if known is None else known
            news = [load for load in loads if load["time"] > known.get(load["replica"], 0.0)]
            idle = [load for load in news if load["running"] + load["waiting"] == 0]
            if len(idle) >= replicas:
                return
            await asyncio.sleep(0.25)
