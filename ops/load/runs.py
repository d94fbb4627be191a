"""The runs behind `bench load`: a simulation of many replicas in one process.

The replicas are replay engines and the clock is simulated, so a run takes what the computing
takes. Decisions take no time and see every replica's load as it is.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from ops.load.arrivals import Floats
from ops.load.policies import Policy, Question
from router.replica_loads import ReplicaLoads
from schemas import DecodeRequest, EngineConfig, MethodSpec, SamplingParams
from workers.engine import EngineBusyError
from workers.replay_engine.engine import ReplayEngine
from workers.replay_engine.recording import Recording
from workers.replay_engine.simulated_time import run_simulated


@dataclass(frozen=True)
class Outcome:
    """The result of a request.

    Seconds run from its arrival on the run's clock; `outside_seconds` of them passed before and
    after the engine had it.
    """

    method: str
    output_tokens: int
    first_token_seconds: float
    seconds: float
    finished_at: float
    outside_seconds: float = 0.0


Runs = dict[str, list[Outcome | None]]
"""Each request's outcome by policy; None if it was refused."""


@dataclass(frozen=True)
class Load:
    """The questions [n] and arrival times [n], the same for every policy."""

    asked: Sequence[Question]
    arrivals: Floats


@dataclass(frozen=True)
class Site:
    """The replicas of a run. `layout`: the methods of each replica."""

    recording: Recording
    tokenizer: Tokenizer
    engine: EngineConfig
    layout: tuple[tuple[str, ...], ...]

    def with_layout(self, layout: Sequence[tuple[str, ...]]) -> "Site":
        """Return the site with other methods on its replicas."""
        return Site(self.recording, self.tokenizer, self.engine, tuple(layout))

    def engines(self) -> list[ReplayEngine]:
        """Fresh replicas."""
        lossless = self.recording.meta.lossless
        source = "recorded answers"
        return [
            ReplayEngine(
                [
                    MethodSpec(name=m, engine="replay", lossless=lossless[m], source=source)
                    for m in methods
                ],
                self.recording,
                self.tokenizer,
                self.engine,
                f"{'+'.join(methods)}-{i}",
            )
            for i, methods in enumerate(self.layout)
        ]


def layout_of(kind: str, methods: Sequence[str], replicas: int) -> list[tuple[str, ...]]:
    """Return each replica's methods: one (`per_method`) or all of them (`shared`)."""
    hosted = [(m,) for m in methods] if kind == "per_method" else [tuple(methods)] * len(methods)
    return [names for names in hosted for _ in range(replicas)]


def simulate(site: Site, policy: Policy, load: Load) -> list[Outcome | None]:
    """Return each question's outcome [n]; None if every place was taken."""
    return run_simulated(_serve(site, policy, load))


async def _serve(site: Site, policy: Policy, load: Load) -> list[Outcome | None]:
    engines = site.engines()

    async def ask(index: int, question: Question, arrival: float) -> Outcome | None:
        await asyncio.sleep(arrival)
        loads = ReplicaLoads([engine.load() for engine in engines])
        for method in policy(question, loads):
            request = DecodeRequest(
                request_id=str(index),
                method=method,
                prompt_token_ids=question.token_ids,
                sampling=SamplingParams(
                    temperature=question.features.temperature,
                    max_tokens=question.features.max_tokens,
                ),
            )
            for host in loads.order(method):
                if method not in loads.reports[host].methods:
                    continue
                try:
                    return await _outcome(engines[host], request)
                except EngineBusyError:
                    continue
        return None

    asked = zip(range(len(load.asked)), load.asked, map(float, load.arrivals), strict=True)
    return await asyncio.gather(*(ask(*one) for one in asked))


async def _outcome(engine: ReplayEngine, request: DecodeRequest) -> Outcome:
    async for chunk in engine.generate(request):
        if chunk.stats is not None:
            return Outcome(
                request.method,
                chunk.stats.output_tokens,
                chunk.stats.first_token_seconds,
                chunk.stats.total_seconds,
                asyncio.get_running_loop().time(),
            )
    raise RuntimeError(f"{request.method}: the answer ended without statistics")
