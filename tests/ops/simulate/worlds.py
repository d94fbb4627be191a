"""Small simulated services whose steps take known seconds."""

from collections.abc import Callable, Sequence

import numpy as np

from ops.load.policies import Policy, Question
from ops.simulate.workload import Path, Workload
from ops.simulate.world import World
from router.fit.assign import build_table
from router.prompt import Features
from schemas import EngineConfig, RouterConfig, RoutingTable
from tests.router.routing_world import CENTROIDS, ENCODER, make_profile

METHODS = ("naive", "ngram")
PREFILL = 0.5


class Constant:
    """Every prompt takes PREFILL seconds, every step `seconds`, whoever shares it."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds

    def prefill(self, _method: int, _prompt_tokens: int, /) -> float:
        return PREFILL

    def step(self, _counts: Sequence[int], _context: float, _rows: float, /) -> float:
        return self._seconds


def table_of(methods: Sequence[str] = METHODS) -> RoutingTable:
    made, vectors = make_profile(methods=methods)
    return build_table(made, vectors, CENTROIDS, ENCODER)


def workload_of(*steps: Sequence[int], max_tokens: int = 1000, prompt: int = 10) -> Workload:
    """A prompt for each of `steps`, which has a method's decode steps each, of a token each."""
    paths = tuple(tuple((Path(1 + n, n, 1.0),) for n in one) for one in steps)
    features = Features(prompt, max_tokens)
    questions = tuple(
        Question((i,) * prompt, i % 2, features, f"prompt {i}") for i in range(len(steps))
    )
    ids = tuple(map(str, range(len(steps))))
    return Workload(ids, questions, np.full(len(steps), 1.0 / len(steps)), paths)


def world_of(
    workload: Workload,
    *,
    rows: int = 2,
    waiting: int = 64,
    costs: object = None,
    kills: tuple[float, ...] = (),
    table: RoutingTable | None = None,
    chunk: int = 256,
) -> World:
    engine = EngineConfig(
        max_batch=rows, max_waiting=waiting, kv_slots=16384, max_context=2048, prefill_chunk=chunk
    )
    return World(
        table=table or table_of(),
        router=RouterConfig(exploration=0.0),
        engine=engine,
        costs=costs or Constant(),
        workload=workload,
        report_seconds=0.0,
        start_seconds=5.0,
        kills=kills,
    )


def by_prompt(method_of: Callable[[Question], str]) -> Policy:
    return lambda question, _: [method_of(question)]
