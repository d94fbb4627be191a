"""Every step the drafter that pays, for the sequences of a shared vLLM engine's adaptive method."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from workers.drafting.arm import Arm
from workers.drafting.goodput import Offer, choose
from workers.drafting.lookup.foreteller import Foreteller
from workers.drafting.step_costs import Draft, StepCosts

if TYPE_CHECKING:
    from workers.vllm_engine.drafting.step import Step

UNTIMED = 3
"""Steps at first whose seconds are not believed: caches and threads are cold."""


@dataclass(frozen=True)
class Learned:
    """A method whose drafter may draft, and how many tokens at most."""

    method: str
    drafter: str
    tokens: int


@dataclass(frozen=True)
class Options:
    """What a MethodSpec says of its drafter: see `Foreteller` and `Arm`."""

    learned: tuple[Learned, ...]
    least: float = 0.02
    past_tokens: int = 50_000
    priors: bool = True

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Options:
        """The inverse of `to_config`."""
        learned = tuple(Learned(**one) for one in config["learned"])
        return cls(learned, **{name: v for name, v in config.items() if name != "learned"})

    def to_config(self) -> dict[str, Any]:
        """Plain values only."""
        return asdict(self)


@dataclass(frozen=True)
class Choice:
    """foretold: by row the tokens that are verified. drafter drafts `tokens` for the rows
    `drafted`; None where nobody does."""

    foretold: Mapping[int, list[int]] = field(default_factory=dict)
    drafter: str | None = None
    drafted: Sequence[int] = ()
    tokens: int = 0

    def tokens_of(self, row: int, drafts: Mapping[int, list[int]]) -> list[int]:
        """The row's draft; `drafts` are the drafter's."""
        if row in self.drafted:
            return drafts.get(row, [])[: self.tokens]
        return self.foretold.get(row, [])


@dataclass(eq=False)
class _Sequence:
    """A request's tokens, of which the engine's process knows nothing but these."""

    id: str
    accepted: Mapping[str, float]
    text: list[int] = field(default_factory=list)
    used: Arm | None = None


class Adaptive:
    """Grants draft tokens by goodput, as our own engine's adaptive drafter does: look-ups foretell
    with a probability, learned drafters expect what they lately had, seconds are those that steps
    have taken here, from the end of a draft to the next one's beginning.

    A drafter with KV of its own (`following`) reads every step of every sequence, so that drafting
    costs it only the levels after the first.
    """

    def __init__(
        self,
        options: Options,
        following: Collection[str],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._foreteller = Foreteller(least=options.least, past_tokens=options.past_tokens)
        self._arms = {
            one.drafter: Arm(one.method, one.tokens, priors=options.priors)
            for one in options.learned
        }
        self._following, self._clock = following, clock
        self._costs = StepCosts()
        self._sequences: dict[str, _Sequence] = {}
        self._before: frozenset[str] = frozenset()
        self._ended, self._steps = 0.0, 0

    def choose(self, step: Step, rows: Sequence[int], limits: Sequence[int]) -> Choice:
        """Learn what came of the last step, and decide for the rows of this method.

        limits: of every row of the batch the tokens that it may draft. Other methods' rows are
        verified besides.
        """
        self._time(step)
        for request in step.scheduled.finished_req_ids:
            self._end(request)
        sequences = [self._learn(step, row) for row in rows]
        foretold = [
            self._foreteller.foretell(sequence.id, limits[row])
            for sequence, row in zip(sequences, rows, strict=True)
        ]
        ready = [i for i, row in enumerate(rows) if limits[row]]
        if not ready or self._steps <= UNTIMED:
            return Choice()  # what a step costs is not known
        others = [row for row in range(len(limits)) if row not in set(rows)]
        context = sum(step.length(row) for row in range(len(limits)))
        beside = sum(1 + limits[row] for row in others)
        asking = [sequences[i] for i in ready]
        offered = [(name, n) for name, arm in self._arms.items() for n in range(1, arm.levels + 1)]
        chains = [chain for arm in self._arms.values() for chain in arm.chains(asking)]
        everybody = len(limits)
        best = choose(
            [foretold[i].survival for i in ready],
            [
                Offer(chain, partial(self._seconds, name, n, len(ready)))
                for (name, n), chain in zip(offered, chains, strict=True)
            ],
            lambda verified: self._costs.step.of(verified + beside, everybody, context),
            tokens_beside=len(others),
        )
        tokens = {
            rows[i]: list(foretold[i].tokens[:length])
            for i, length in zip(ready, best.lengths, strict=True)
        }
        if best.offer is None:
            return Choice(tokens)
        name, levels = offered[best.offer]
        drafted = [rows[ready[i]] for i in best.taken]
        for i in best.taken:
            sequences[ready[i]].used = self._arms[name]
        return Choice(tokens, name, drafted, levels)

    def drafted(self, drafter: str, tokens: int, rows: int, seconds: float) -> None:
        """A learned drafter took so long for so many rows, whoever asked for it."""
        if tokens and drafter in self._arms:
            self._costs.saw_drafting(drafter, Draft(tokens, rows), seconds)

    def ended(self, step: Step) -> None:
        """All of the step's drafts are there."""
        self._before = frozenset(step.runner.input_batch.req_ids)
        self._ended = self._clock()

    def _seconds(self, name: str, levels: int, count: int, drafted: int) -> float:
        """Of drafting for so many of the sequences, of which there are `count`."""
        if name not in self._following:
            return self._costs.drafting(name, Draft(levels, drafted))
        return self._costs.drafting(name, Draft(levels, count)) * (levels - 1) / levels

    def _time(self, step: Step) -> None:
        """What the step took that has just been decoded, where nothing but decoding was in it and
        nobody had to wait for a request."""
        names = step.runner.input_batch.req_ids
        drafted = step.drafted()
        scheduled = step.scheduled.num_scheduled_tokens
        decoding = all(
            step.sampled[row] and scheduled[name] == drafted[row] + 1
            for row, name in enumerate(names)
        )
        if decoding and names and self._before.issuperset(names):
            self._steps += 1
            if self._steps > UNTIMED:
                widths = [scheduled[name] for name in names]
                context = sum(step.length(row) for row in range(len(names)))
                self._costs.step.saw(widths, context, self._clock() - self._ended)

    def _learn(self, step: Step, row: int) -> _Sequence:
        sequence = self._sequence(step, row)
        came, drafted = step.sampled[row], step.drafted()[row]
        sequence.text += step.tokens(row, len(sequence.text))
        if came:
            self._foreteller.came(sequence.id, came)
            for arm in self._arms.values():
                if arm is sequence.used and drafted:
                    held = len(came) - 1
                    arm.saw(sequence, held, drafted)
                elif arm is not sequence.used:
                    arm.sat_out(sequence)
            sequence.used = None
        return sequence

    def _sequence(self, step: Step, row: int) -> _Sequence:
        name = step.runner.input_batch.req_ids[row]
        if name not in self._sequences:
            scope, accepted = step.asked(row)
            known = self._sequences[name] = _Sequence(name, accepted)
            prompt, greedy = step.prompt_tokens(row), step.greedy(row)
            self._foreteller.begin(name, known.text, scope, prompt, greedy=greedy)
        return self._sequences[name]

    def _end(self, request: str) -> None:
        sequence = self._sequences.pop(request, None)
        if sequence is not None:
            self._foreteller.end(request)
            for arm in self._arms.values():
                arm.forget(sequence)
