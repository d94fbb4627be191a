"""`workers`' own controller of drafts, told of simulated steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self

import numpy as np

from ops.simulate.costs import RowCosts
from router.fit.speedup import BASELINE
from schemas import MethodSpec
from workers.drafting.names import LOOK_UPS, NOBODY
from workers.methods import get_method
from workers.vllm_engine.drafting.adaptive import Adaptive, Choice, Learned, Options

METHOD = "vllm_adaptive"
"""Whose controller, and most tokens of a draft, these are: chains, as a trace of one holds."""
FORWARDS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Rows, and sequences, of the forward passes that are measured before serving."""
PLAIN = ("none", "ngram", "suffix")
"""Drafters without training: the controller has look-ups of its own."""
CONTEXT = 128
"""Tokens of each of these."""
NO_LEVELS: tuple[float, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A traced answer.

    tokens: of the prompt (`prompt_tokens` of them) and the answer. kept: by drafter and position,
    from the answer's second token on, the probability that at least one, two, ... draft tokens are
    accepted.
    """

    tokens: tuple[int, ...]
    prompt_tokens: int
    greedy: bool
    kept: Mapping[str, Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Stepwise:
    """What the controller works on. learned: the drafters that were traced on chains. answers: by
    prompt of the workload. deciding: whether its own deciding takes the seconds that it takes on
    the machine that simulates; otherwise none."""

    learned: tuple[Learned, ...]
    answers: tuple[Answer, ...]
    costs: RowCosts
    deciding: bool = True


def stepwise_of(
    rows: Sequence[Mapping[str, Any]],
    ids: Sequence[str],
    methods: Sequence[MethodSpec],
    costs: RowCosts,
    deciding: bool,
) -> Stepwise | None:
    """Return what step-by-step drafting needs of traced answers to these prompts.

    rows: those of one temperature (`ops.tables.trace_store`). Returns None unless plain decoding
    and a learned drafter on a chain are among the methods.
    """
    chains = {m.name: m.drafter for m in methods if m.tree == "chain" and m.drafter not in PLAIN}
    if not chains or BASELINE not in {m.name for m in methods}:
        return None
    by_prompt: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_prompt.setdefault(row["prompt_id"], {})[row["method"]] = row
    answers, most = [], dict.fromkeys(chains, 1)
    for one in (by_prompt[prompt_id] for prompt_id in ids):
        plain = one[BASELINE]
        kept = {drafter: one[name]["kept"] for name, drafter in chains.items()}
        tokens = (*plain["prompt"], *plain["answer"])
        answers.append(Answer(tokens, len(plain["prompt"]), plain["temperature"] == 0.0, kept))
        for name, drafter in chains.items():
            most[name] = max(most[name], *map(len, kept[drafter]), 1)
    learned = tuple(Learned(name, drafter, most[name]) for name, drafter in chains.items())
    return Stepwise(learned, tuple(answers), costs, deciding)


@dataclass(eq=False)
class Row:
    """A sequence of the batch.

    said: tokens of its answer after the step. new: those of this step. drafted: the number of draft
    tokens that the step verified; None if it read the prompt.
    """

    name: str
    answer: Answer
    said: int
    new: tuple[int, ...]
    drafted: int | None = None

    @property
    def length(self) -> int:
        return self.answer.prompt_tokens + self.said

    @property
    def ended(self) -> bool:
        return self.length >= len(self.answer.tokens)

    def held(self, choice: Choice, row: int, chance: float) -> int:
        """How many of its draft tokens come."""
        if count := choice.drafted.get(row, 0):
            kept = self.answer.kept[choice.drafter or ""]
            levels = kept[self.said - 1] if self.said <= len(kept) else NO_LEVELS
            return sum(level > chance for level in levels[:count])
        count = 0
        for token, came in zip(
            choice.looked_up.get(row, ()), self.answer.tokens[self.length :], strict=False
        ):
            if token != came:
                break
            count += 1
        return count

    def go_on(self, drafted: int, held: int) -> None:
        """A step in which so many of its draft tokens came."""
        begin = self.length
        self.new = self.answer.tokens[begin : begin + held + 1]
        self.said += len(self.new)
        self.drafted = drafted


class Controller:
    """One replica's."""

    def __init__(self, stepwise: Stepwise, seed: int) -> None:
        self._costs = stepwise.costs
        self._clock = _Clock(stepwise.deciding)
        self._adaptive = Adaptive(Options(stepwise.learned), {}, self._clock)
        self._most = int(str(get_method(METHOD).settings["stop"]["gamma"]))
        self._rng = np.random.default_rng((seed, 12))
        self.deciding_seconds = 0.0
        self.drafted_by: dict[str, int] = {}
        """Of the sequences in each step, summed, whose drafts were verified."""
        step = self._adaptive.costs.step
        for rows in FORWARDS:
            step.measured(rows, self._costs.forward(1, CONTEXT, rows))
        for rows in FORWARDS[1:]:
            step.saw([1] * rows, rows * CONTEXT, self._costs.forward(rows, rows * CONTEXT, rows))

    def step(self, rows: Sequence[Row]) -> float:
        """Decides by what the rows' last step brought and goes on; seconds of the step."""
        began = self._clock.now
        decoded: Any = _Decoded.of(rows)  # answers what the controller asks an engine's step
        with self._clock.running():
            choice = self._adaptive.choose(decoded, range(len(rows)), [self._most] * len(rows))
        self.deciding_seconds += self._clock.now - began
        context = sum(row.length for row in rows)
        counts = [choice.drafted.get(i, len(choice.looked_up.get(i, ()))) for i in range(len(rows))]
        forward = self._costs.forward(len(rows), context, len(rows) + sum(counts))
        if choice.drafter is not None:
            names = [rows[i].name for i in choice.drafted]
            with self._adaptive.timed(choice.drafter, choice.tokens, names):
                self._clock.now += self._costs.drafting(choice.drafter, forward)
        self._clock.now += forward
        for i, (row, count) in enumerate(zip(rows, counts, strict=True)):
            drafter = choice.drafter if i in choice.drafted else LOOK_UPS
            self._count((drafter or NOBODY) if count else NOBODY)
            row.go_on(count, row.held(choice, i, self._rng.random()))
        return self._clock.now - began

    def _count(self, drafter: str) -> None:
        self.drafted_by[drafter] = self.drafted_by.get(drafter, 0) + 1


@dataclass
class _Clock:
    """Simulated seconds, and real ones while the controller decides."""

    deciding: bool
    now: float = 0.0
    since: float | None = None

    def __call__(self) -> float:
        return self.now if self.since is None else self.now + perf_counter() - self.since

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around what takes real seconds."""
        if not self.deciding:
            yield
            return
        self.since = perf_counter()
        yield
        self.now, self.since = self(), None


@dataclass(frozen=True)
class _Decoded:
    """The step before, as the controller asks about it."""

    rows: Sequence[Row]
    sampled: list[list[int]]
    verified_drafts: list[int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        return cls(rows, [list(row.new) for row in rows], [row.drafted or 0 for row in rows])

    def request(self, row: int) -> str:
        return self.rows[row].name

    def verified(self, row: int) -> int:
        one = self.rows[row]
        return one.answer.prompt_tokens if one.drafted is None else one.drafted + 1

    def drafted(self) -> list[int]:
        return self.verified_drafts

    def gone(self, known: Iterable[str]) -> list[str]:
        running = {row.name for row in self.rows}
        return [name for name in known if name not in running]

    def greedy(self, row: int) -> bool:
        return self.rows[row].answer.greedy

    def asked(self, row: int) -> tuple[str, str]:
        """Give each request a scope of its own.

        Simulated prompts repeat, so a look-up in earlier answers would find each whole answer.
        """
        name = self.rows[row].name
        return name, name

    def length(self, row: int) -> int:
        return self.rows[row].length

    def tokens(self, row: int, since: int) -> list[int]:
        one = self.rows[row]
        return list(one.answer.tokens[since : one.length])

    def prompt_tokens(self, row: int) -> int:
        return self.rows[row].answer.prompt_tokens
