"""The runs of `bench learning`: learned routing compared with the fitted table.

Every request is asked twice, shortly after one another: routed, and pinned to the method that the
fitted table gives its cluster. Both ways share the replicas, and the order alternates.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from ops.harness.chat_client import model_name
from ops.harness.own_service import OwnService
from ops.load.arrivals import poisson
from ops.load.client import AnswerError, Ask, answered, client, until_quiet
from ops.load.policies import Question
from ops.load.runs import Outcome

LOOK_SECONDS = 1.0

Advance = Callable[[], None]
Static = Callable[[Question], str]
"""The method that the table, as it was fitted, gives a question."""


@dataclass(frozen=True)
class Phase:
    """A part of a run: its questions, and the event that happens to the service before them."""

    name: str
    questions: Sequence[Question]
    event: Callable[[OwnService], object] | None = None


@dataclass(frozen=True)
class Pair:
    """One question asked both ways; None without an answer. `at`: seconds into the run."""

    at: float
    phase: str
    routed: Outcome | None
    static: Outcome | None


@dataclass(frozen=True)
class Look:
    """The table in force at one moment. `at`: seconds into the run; `favourites`: each cluster's by
    temperature band."""

    at: float
    version: int
    fit_id: str
    favourites: tuple[dict[str, str], ...]
    drift: float | None
    alarm_above: float | None


@dataclass
class Run:
    """What a scenario's phases gave."""

    pairs: list[Pair] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    starts: dict[str, float] = field(default_factory=dict)
    """When each phase began, in seconds into the run."""
    failures: list[str] = field(default_factory=list)
    """What the service answered instead of routed answers."""


async def run_phases(
    service: OwnService,
    phases: Sequence[Phase],
    static: Static,
    pairs_per_s: float,
    seed: int,
    advance: Advance,
) -> Run:
    """Run the phases one after the other on one clock; call `advance` for each pair."""
    run = Run()
    async with client(service.url) as http:
        model = await model_name(http)
        await until_quiet(http, service.replicas)
        loop = asyncio.get_running_loop()
        started = loop.time()
        asker = _Asker(http, model, started)
        looking = asyncio.create_task(_look(http, run, started))
        waiting: list[asyncio.Task[None]] = []
        try:
            for number, phase in enumerate(phases):
                if phase.event is not None:
                    await asyncio.to_thread(phase.event, service)
                run.starts[phase.name] = begun = loop.time() - started
                gaps = poisson(len(phase.questions), seed + number) / pairs_per_s
                for index, (question, gap) in enumerate(zip(phase.questions, gaps, strict=True)):
                    at = started + begun + float(gap)
                    await asyncio.sleep(max(0.0, at - loop.time()))
                    # the second one comes half a mean gap after the first
                    second = at + 0.5 / pairs_per_s
                    dues = (at, second) if index % 2 == 0 else (second, at)
                    asked = asker.pair(question, static(question), dues, phase.name)
                    waiting.append(asyncio.create_task(_into(run, asked, advance)))
            await asyncio.gather(*waiting)
        finally:
            looking.cancel()
            for task in waiting:
                task.cancel()
    run.pairs.sort(key=lambda pair: pair.at)
    return run


async def _into(run: Run, asked: Any, advance: Advance) -> None:
    pair, failure = await asked
    run.pairs.append(pair)
    if failure is not None:
        run.failures.append(failure)
    advance()


@dataclass(frozen=True)
class _Asker:
    http: httpx.AsyncClient
    model: str
    started: float

    async def pair(
        self, question: Question, pinned: str, dues: tuple[float, float], phase: str
    ) -> tuple[Pair, str | None]:
        """Ask a question routed and pinned, at the loop's times `dues`.

        Returns the pair, and the failure of its routed request if it failed.
        """
        (routed, failure), (static, _) = await asyncio.gather(
            self._ask(question, None, dues[0]), self._ask(question, pinned, dues[1])
        )
        return Pair(min(dues) - self.started, phase, routed, static), failure

    async def _ask(
        self, question: Question, method: str | None, due: float
    ) -> tuple[Outcome | None, str | None]:
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        body = Ask(question, method).body(self.model)
        try:
            outcome = await answered(self.http, body, due, self.started)
            return outcome, None if outcome is not None else "refused"
        except (AnswerError, httpx.HTTPError) as error:
            return None, str(error) or type(error).__name__


async def _look(http: httpx.AsyncClient, run: Run, started: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        body = (await http.get("/v1/routing")).json()
        drift = body.get("drift") or {}
        run.looks.append(
            Look(
                loop.time() - started,
                body["version"],
                body["fit_id"],
                tuple(body["assignment"]),
                drift.get("share_farther"),
                drift.get("alarm_above"),
            )
        )
        await asyncio.sleep(LOOK_SECONDS)
