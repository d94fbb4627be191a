"""The load tests of `bench simulated`; each round runs on a service of its own."""

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ops.harness.boundary import InputError
from ops.harness.chat_client import model_name
from ops.harness.prompts import Prompt
from ops.harness.running_service import started_service
from ops.load.arrivals import poisson
from ops.load.client import client
from ops.load.loadtest.figures import Target, summary
from ops.load.loadtest.runs import asked_of, drive
from schemas import AppConfig
from schemas.json_files import read_json

WARM_UP = 8
"""Requests that a service answers before the first load test, at the rate of a calm one."""

Found = dict[str, Any]
"""What `specadapt loadtest --json` would write."""


@dataclass(frozen=True)
class LoadTest:
    """A load test.

    method: the pinned method; None if routed. rate: requests per second. calibrates: whether the
    overhead is estimated from it; such a test is not judged.
    """

    method: str | None
    rate: float
    requests: int
    seed: int
    calibrates: bool = False

    @property
    def name(self) -> str:
        kind = ", calibrating" if self.calibrates else ""
        return f"{self.method or 'routed'} at {self.rate:g} a second{kind}"


@dataclass(frozen=True)
class Asking:
    """What all load tests have in common."""

    config: AppConfig
    prompts: Sequence[Prompt]
    max_tokens: int
    temperature: float


def planned(
    method: str, routed: Sequence[float], pinned: Sequence[float], seconds: float, seed: int
) -> list[LoadTest]:
    """Return a load test of `seconds` for each rate, and one that calibrates for each kind.

    The rate of a calibrating test is halfway between the kind's two highest rates.
    """
    tests: list[LoadTest] = []
    kinds: list[tuple[str | None, Sequence[float]]] = [(None, routed), (method, pinned)]
    for name, rates in kinds:
        highest = sorted(rates)[-2:]
        between = sum(highest) / len(highest)
        for rate, calibrates in (*((rate, False) for rate in rates), (between, True)):
            requests = max(2, round(rate * seconds))
            tests.append(LoadTest(name, rate, requests, seed + len(tests), calibrates))
    return tests


def answered(
    asking: Asking,
    tests: Sequence[LoadTest],
    number: int,
    kept: Path,
    tick: Callable[[int], None],
) -> list[tuple[LoadTest, Found]]:
    """Return round `number` in its service's order, read from `kept` or run and stored there.

    Raises InputError for a file of other load tests, and if the service does not answer.
    """
    if kept.exists():
        tick(sum(test.requests for test in tests))
        return _read(kept, tests)
    order = list(tests)
    random.Random(number).shuffle(order)
    with started_service(asking.config) as url:
        found = asyncio.run(_asked(url, asking, order, tick))
    written = [{"test": asdict(test), **one} for test, one in zip(order, found, strict=True)]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(written), encoding="utf-8")
    return list(zip(order, found, strict=True))


def _read(kept: Path, tests: Sequence[LoadTest]) -> list[tuple[LoadTest, Found]]:
    try:
        found = [(LoadTest(**one["test"]), one) for one in read_json(kept)]
    except (KeyError, TypeError) as error:
        raise InputError(f"--tests: {kept} was not written by this command") from error
    if {test.name: test for test, _ in found} != {test.name: test for test in tests}:
        raise InputError(f"--tests: {kept} holds other load tests; name another folder")
    return found


async def _asked(
    url: str, asking: Asking, tests: Sequence[LoadTest], tick: Callable[[int], None]
) -> list[Found]:
    async with client(url) as server:
        model = await model_name(server)
        calm = LoadTest(None, min(test.rate for test in tests), WARM_UP, seed=0)
        await _one(server, model, asking, calm)
        found = []
        for test in tests:
            found.append(await _one(server, model, asking, test))
            tick(test.requests)
    return found


async def _one(server: Any, model: str, asking: Asking, test: LoadTest) -> Found:
    parameters = {
        "model": model if test.method is None else f"{model}:{test.method}",
        "max_tokens": asking.max_tokens,
        "temperature": asking.temperature,
    }
    asked = asked_of(asking.prompts, test.requests, test.seed)
    arrivals = poisson(test.requests, test.seed) / test.rate
    answers, seconds = await drive(server, asked, arrivals, parameters, lambda: None)
    settings = {**parameters, "rate": test.rate, "arrivals": "poisson", "seed": test.seed}
    return {**summary(answers, seconds, Target(None, None)), "settings": settings}
