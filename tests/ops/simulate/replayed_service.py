"""Replay engines behind a policy in simulated time: what simulations are compared with."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from ops.load.arrivals import Floats
from ops.load.policies import Policy, Question
from router.replica_loads import ReplicaLoads
from schemas import DecodeRequest, DecodeStats, EngineConfig, MethodSpec, SamplingParams
from workers.replay_engine.engine import ReplayEngine
from workers.replay_engine.recording import Recording
from workers.replay_engine.simulated_time import run_simulated


@dataclass(frozen=True)
class Site:
    """The replicas of a run. `layout`: the methods of each replica."""

    recording: Recording
    tokenizer: Tokenizer
    engine: EngineConfig
    layout: tuple[tuple[str, ...], ...]

    def engines(self) -> list[ReplayEngine]:
        """Fresh replicas."""
        lossless = self.recording.meta.lossless
        return [
            ReplayEngine(
                [
                    MethodSpec(name=m, engine="replay", lossless=lossless[m], source="recording")
                    for m in methods
                ],
                self.recording,
                self.tokenizer,
                self.engine,
                f"{'+'.join(methods)}-{i}",
            )
            for i, methods in enumerate(self.layout)
        ]


def replayed(
    site: Site, policy: Policy, questions: Sequence[Question], arrivals: Floats
) -> list[DecodeStats]:
    """Return each question's statistics [n], asked at its arrival [n]."""
    return run_simulated(_serve(site, policy, questions, arrivals))


async def _serve(
    site: Site, policy: Policy, questions: Sequence[Question], arrivals: Floats
) -> list[DecodeStats]:
    engines = site.engines()

    async def ask(index: int, question: Question, arrival: float) -> DecodeStats:
        await asyncio.sleep(arrival)
        loads = ReplicaLoads([engine.load() for engine in engines])
        [method] = policy(question, loads)
        request = DecodeRequest(
            request_id=str(index),
            method=method,
            prompt_token_ids=question.token_ids,
            sampling=SamplingParams(temperature=0.0, max_tokens=question.features.max_tokens),
        )
        *_, last = [chunk async for chunk in engines[loads.order(method)[0]].generate(request)]
        assert last.stats is not None
        return last.stats

    asked = zip(range(len(questions)), questions, map(float, arrivals), strict=True)
    return await asyncio.gather(*(ask(*one) for one in asked))
