"""The runs behind `bench load`: a simulation of many replicas in one process.

The replicas are replay engines and the clock is simulated, so a run takes what the computing
takes. Decisions take no time and see every replica's load as it is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tokenizers import Tokenizer

from ops.load_arrivals import Floats
from ops.load_policies import Policy, Question
from schemas import DecodeRequest, EngineConfig, LoadReport, MethodSpec, SamplingParams
from workers.engine import EngineBusyError
from workers.replay_engine.engine import ReplayEngine, rows_of
from workers.replay_engine.recording import Recording
from workers.replay_engine.simulated_time import run_simulated


@dataclass(frozen=True)
class Outcome:
    """What became of one request; seconds are simulated ones, from its arrival."""

    method: str
    output_tokens: int
    first_token_seconds: float
    seconds: float
    finished_at: float


@dataclass(frozen=True)
class Site:
    """What replicas are made of. `layout`: the methods of each replica, one entry a replica."""

    recording: Recording
    tokenizer: Tokenizer
    engine: EngineConfig
    layout: tuple[tuple[str, ...], ...]

    def with_layout(self, layout: Sequence[tuple[str, ...]]) -> "Site":
        """The same site with other methods on its replicas."""
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
    """`replicas` per method: each of one method (`per_method`), or of all of them (`shared`)."""
    hosted = [(m,) for m in methods] if kind == "per_method" else [tuple(methods)] * len(methods)
    return [names for names in hosted for _ in range(replicas)]


def capacity(site: Site, questions: Sequence[Question]) -> float:
    """Requests a second that the replicas finish with full batches, all prompts alike.

    A replica of several methods counts with its fastest one.
    """
    rows = rows_of(site.engine)
    methods = {name for names in site.layout for name in names}
    seconds = {
        m: fmean(_share(site.recording, m, question, rows) for question in questions)
        for m in methods
    }
    return sum(1.0 / min(seconds[m] for m in names) for names in site.layout)


def _share(recording: Recording, method: str, question: Question, batch: int) -> float:
    """The replica's seconds that one answer takes where `batch` sequences share each step."""
    answer = recording.answers[method, question.features.temperature, question.token_ids]
    decode = recording.step_times.decode_seconds(method, batch, answer.prompt_tokens, answer.steps)
    return answer.prefill_seconds + answer.pace * decode / batch


def simulate(
    site: Site, policy: Policy, questions: Sequence[Question], arrivals: Floats
) -> list[Outcome | None]:
    """Each question's outcome [n], asked at its arrival [n]; None where every place was taken."""
    return run_simulated(_serve(site, policy, questions, arrivals))


async def _serve(
    site: Site, policy: Policy, questions: Sequence[Question], arrivals: Floats
) -> list[Outcome | None]:
    engines = site.engines()

    async def ask(index: int, question: Question, arrival: float) -> Outcome | None:
        await asyncio.sleep(arrival)
        loads = {engine: engine.load() for engine in engines}
        for method in policy(question, list(loads.values())):
            request = DecodeRequest(
                request_id=str(index),
                method=method,
                prompt_token_ids=question.token_ids,
                sampling=SamplingParams(
                    temperature=question.features.temperature,
                    max_tokens=question.features.max_tokens,
                ),
            )
            for engine in _by_outstanding(loads, method):
                try:
                    return await _outcome(engine, request)
                except EngineBusyError:
                    continue
        return None

    asked = zip(range(len(questions)), questions, map(float, arrivals), strict=True)
    return await asyncio.gather(*(ask(*one) for one in asked))


def _by_outstanding(loads: Mapping[ReplayEngine, LoadReport], method: str) -> list[ReplayEngine]:
    hosts = [engine for engine, load in loads.items() if method in load.methods]
    return sorted(hosts, key=lambda engine: loads[engine].outstanding_tokens)


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
