"""What is asked of a simulated service: prompts, and the steps that each method takes to answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np

from ops.harness.boundary import InputError
from ops.load.arrivals import Floats
from ops.load.policies import Question
from router import evidence, predict
from router.prompt import Features, Predicted
from schemas import (
    Decision,
    DecodeRequest,
    MethodSpec,
    RoutingTable,
    SamplingParams,
    temperature_band,
)

DRAWS = 16
"""Paths through an answer that are drawn in advance if acceptance is random."""


@dataclass(frozen=True, slots=True)
class Path:
    """One way through an answer under one method: its output `tokens`, the decode `steps` that come
    after its first token, and the rows that such a step verifies (`width`, the mean)."""

    tokens: int
    steps: int
    width: float

    @property
    def rate(self) -> float:
        """Tokens a decode step."""
        return (self.tokens - 1) / self.steps if self.steps else 0.0

    def until(self, steps: int) -> "Path":
        """Return its first decode steps."""
        return Path(1 + floor(steps * self.rate), steps, self.width)


@dataclass(frozen=True)
class Workload:
    """Prompts as the router sees them [n], how often each is asked (`weights` [n], of sum 1), and
    by prompt and method the ways through its answer: paths[n][m] are equally likely. ids [n] are
    those of traced prompts."""

    ids: tuple[str, ...]
    questions: tuple[Question, ...]
    weights: Floats
    paths: tuple[tuple[tuple[Path, ...], ...], ...]

    def drawn(self, count: int, seed: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
        """Indices of prompts [count]."""
        rng = np.random.default_rng((seed, 1))
        return rng.choice(len(self.questions), count, p=self.weights)

    def mean_widths(self) -> list[float]:
        """By method, the rows that a decode step verifies, over all prompts."""
        means = []
        for m in range(len(self.paths[0])):
            steps = rows = 0.0
            for weight, prompt in zip(self.weights, self.paths, strict=True):
                steps += weight * sum(path.steps for path in prompt[m]) / len(prompt[m])
                rows += weight * sum(p.steps * p.width for p in prompt[m]) / len(prompt[m])
            means.append(rows / steps if steps else 1.0)
        return means


def walk(kept: Sequence[Sequence[float]], tokens: int, rng: np.random.Generator) -> Path:
    """Draw a path through an answer of `tokens` tokens from its trace (`router.fit.traced`).

    A step accepts j draft tokens or more with the traced probability; one random number decides all
    levels. At temperature 0 probabilities are 0 or 1. Raises ValueError if the trace does not fit.
    """
    if len(kept) != max(0, tokens - 1):
        raise ValueError(f"{len(kept)} positions for an answer of {tokens} tokens")
    position, steps, rows = 1, 0, 0
    while position < tokens:
        levels, chance = kept[position - 1], rng.random()
        position += 1 + sum(level > chance for level in levels)
        steps += 1
        rows += 1 + len(levels)
    return Path(tokens, steps, rows / steps if steps else 1.0)


def traced_workload(
    rows: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    known: Mapping[str, tuple[int, Predicted]],
    max_tokens: int,
    seed: int,
) -> Workload:
    """Return a workload of the prompts that all methods were traced on, each equally often.

    rows: those of one temperature (`ops.tables.trace_store`). known: by prompt id its cluster and
    the regression's predictions. Raises InputError if there is no such prompt.
    """
    by_prompt: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        if row["method"] in methods and row["answer"]:
            by_prompt.setdefault(row["prompt_id"], {})[row["method"]] = row
    rng = np.random.default_rng((seed, 7))
    ids, questions, paths = [], [], []
    for prompt_id, found in by_prompt.items():
        if len(found) < len(methods):
            continue
        first = next(iter(found.values()))
        ids.append(prompt_id)
        draws = 1 if first["temperature"] == 0.0 else DRAWS
        cluster, said = known[prompt_id]
        features = Features(len(first["prompt"]), max_tokens, first["temperature"], said)
        questions.append(Question(tuple(first["prompt"]), cluster, features, first["text"]))
        paths.append(
            tuple(
                tuple(walk(found[m]["kept"], len(found[m]["answer"]), rng) for _ in range(draws))
                for m in methods
            )
        )
    if not questions:
        raise InputError(f"--traces: no prompt was traced under all of {', '.join(methods)}")
    weights = np.full(len(questions), 1.0 / len(questions))
    return Workload(tuple(ids), tuple(questions), weights, tuple(paths))


def table_workload(
    table: RoutingTable,
    methods: Sequence[MethodSpec],
    temperature: float,
    max_tokens: int,
    seed: int,
) -> Workload:
    """What a routing table knows of its clusters, each as often as the profile saw it: its mean
    prompt and acceptance, and output lengths with an end as likely after every token, which is how
    the table counts them (`router.learner`). methods: the table's, which say how many they draft.
    """
    accepted = evidence.acceptance(table)[:, :, temperature_band(temperature)]
    typical = table.provenance.get("prompt_tokens") or []
    rng = np.random.default_rng((seed, 7))
    questions, paths = [], []
    for k in range(len(accepted)):
        prompt = round(typical[k] if k < len(typical) else predict.TYPICAL_PROMPT_TOKENS)
        mean = max(1.0, predict.expected_output(table, k))
        lengths = np.minimum(max_tokens, rng.geometric(1.0 / mean, DRAWS))
        questions.append(
            Question((0,) * prompt, k, Features(prompt, max_tokens, temperature), f"cluster {k}")
        )
        paths.append(
            tuple(
                tuple(_path(int(tokens), float(accepted[k, m]), spec) for tokens in lengths)
                for m, spec in enumerate(methods)
            )
        )
    often = np.maximum(table.output_count, 1e-9)
    ids = tuple(f"cluster-{k}" for k in range(len(accepted)))
    return Workload(ids, tuple(questions), often / often.sum(), tuple(paths))


def _path(tokens: int, accepted: float, method: MethodSpec) -> Path:
    steps = max(1, round((tokens - 1) / accepted)) if tokens > 1 else 0
    drafted = int(str(method.settings.get("stop", {}).get("gamma", 0)))
    return Path(tokens, steps, 1.0 + drafted)


NEVER = float("inf")


class Request:
    """A simulated request. Times are seconds of the run; NEVER means not yet.

    number: unique in the run. turn: of its conversation, from 0. scope: names the conversation; ""
    if it has one turn. ways: the path by method. method, path: of the method that answers.
    line: the methods (indices) to ask next. decision: the router's, if it learns. handed: when a
    replica first had it. prompt: its tokens. held: those that its replica need not read. said:
    tokens that dead replicas emitted. counted: output tokens that loads still count before the
    first of this replica. begun: its replica's count of steps when its first token was out. cut:
    whether its client has left or its deadline has passed.
    batch_steps: by method, the batch sizes of its decode steps, summed. stalled_seconds: while
    other prompts were read in between. Both are complete at its end.
    """

    __slots__ = (
        *("number", "turn", "scope", "arrival", "question", "ways", "line", "method", "path"),
        *("prompt", "held", "unread"),
        *("decision", "handed", "admitted", "first", "begun", "said", "failures"),
        *("batch_steps", "stalled_seconds", "counted", "cut"),
    )

    def __init__(
        self,
        number: int,
        arrival: float,
        question: Question,
        ways: tuple[Path, ...],
        turn: int = 0,
        scope: str = "",
    ) -> None:
        self.number, self.arrival, self.turn, self.scope = number, arrival, turn, scope
        self.question, self.ways = question, ways
        self.line: list[int] = []
        self.method, self.path = -1, ways[0]
        self.prompt = self.unread = question.features.prompt_tokens
        self.decision: Decision | None = None
        self.handed = self.admitted = self.first = self.begun = NEVER
        self.held = 0
        self.cut = False
        self.said = self.failures = 0
        self.batch_steps: dict[str, int] = {}
        self.stalled_seconds = 0.0
        self.counted = question.features.max_tokens

    @property
    def told(self) -> tuple[int, ...]:
        """Return the prompt and the answer once it has ended, in made-up tokens."""
        return self.question.token_ids + (0,) * (self.said + self.path.tokens)

    def decode(self, method: str) -> DecodeRequest:
        """Return the request as an ingress sends it."""
        features = self.question.features
        return DecodeRequest(
            request_id=str(self.number),
            method=method,
            prompt_token_ids=self.question.token_ids + (0,) * self.said,
            sampling=SamplingParams(max_tokens=features.max_tokens),
            expected_tokens=self.counted,
            scope=self.scope,
        )

    def answered_by(self, method: int) -> None:
        """Continue with this method after what was emitted, on the same kind of path."""
        path = self.ways[method]
        if self.said:
            left = max(1, path.tokens - self.said)
            steps = max(1, round((left - 1) / path.rate)) if left > 1 else 0
            path = Path(left, steps, path.width)
        self.method, self.path, self.begun = method, path, NEVER

    def lost(self, emitted: int) -> None:
        """Record that its replica died after emitting `emitted` tokens."""
        self.said += emitted
        self.counted = max(1, self.counted - emitted)
        self.prompt = self.question.features.prompt_tokens + self.said
        self.failures += 1
