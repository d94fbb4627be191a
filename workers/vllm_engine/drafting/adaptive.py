"""The adaptive method of a shared vLLM engine: in every step the drafter that pays, by request."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers.drafting.acceptance import Acceptance
from workers.drafting.controller import LOOK_UPS, NOBODY, PREDICTION, Batch, Controller
from workers.drafting.estimates import Estimates
from workers.drafting.failures import Failures
from workers.drafting.lookup.datastore import Datastore
from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers
from workers.drafting.lookup.prediction import Prediction
from workers.drafting.step_costs import Finished, StepCosts
from workers.stopwatch import Stopwatch
from workers.vllm_engine.drafting.portfolio import Options

if TYPE_CHECKING:
    from workers.vllm_engine.drafting.step import Step


@dataclass(frozen=True)
class Choice:
    """Draft tokens of a step. looked_up: by row the tokens that are verified. drafter: the learned
    drafter, if one drafts. drafted: by row how many of its tokens are verified."""

    looked_up: Mapping[int, list[int]] = field(default_factory=dict)
    drafter: str | None = None
    drafted: Mapping[int, int] = field(default_factory=dict)

    def tokens_of(self, row: int, drafts: Mapping[int, list[int]]) -> list[int]:
        """Return a row's draft. drafts: the learned drafter's, by row."""
        if row in self.drafted and row in drafts:
            return drafts[row][: self.drafted[row]]
        return self.looked_up.get(row, [])


@dataclass(eq=False)
class _Sequence:
    """A request's tokens after the first `skipped`, the drafter it has in this step, and its
    looked-up draft."""

    id: str
    asked: str
    scope: str
    prompt_tokens: int
    prediction: Prediction | None = None
    greedy: bool = True
    kept: bool = True
    skipped: int = 0
    text: list[int] = field(default_factory=list)
    used: str | None = None
    looked_up: list[int] = field(default_factory=list)

    def follow(self, step: Step, row: int) -> None:
        self.text += step.tokens(row, self.skipped + len(self.text))

    @property
    def author(self) -> str:
        """Who looked its draft up."""
        if self.prediction is None or not self.looked_up:
            return LOOK_UPS
        copied = self.prediction.ahead[: len(self.looked_up)] == self.looked_up
        return PREDICTION if copied else LOOK_UPS

    @property
    def answer(self) -> list[int]:
        return self.text[self.prompt_tokens - self.skipped :]


class Adaptive:
    """Choose drafts with `Controller`, from what vLLM's steps show.

    Steps are timed from one choice to the next, and drafters in between, on the device's clock:
    times are read a step later, when the device has passed them. The responses of all methods are
    looked up later. unread: by drafter with KV of its own, the tokens of a request that it must
    read before it drafts. failures: counts and disables drafters that fail.
    """

    def __init__(
        self,
        options: Options,
        unread: Mapping[str, Callable[[str], int]],
        stopwatch: Callable[[], Stopwatch],
        failures: Failures | None = None,
    ) -> None:
        self._past = PastAnswers(options.past_bytes)
        stored = None if options.stored is None else Datastore(*options.stored)
        estimates = Estimates()
        self._look_ups = LookUps(
            least=options.least, past=self._past, datastore=stored, estimates=estimates
        )
        self._methods = {one.drafter: one.method for one in options.learned}
        self._unread = unread
        self._failures = failures or Failures()
        self.costs, self.authors = StepCosts(), Authors()
        self.controller = Controller(
            [Acceptance(o.drafter, o.tokens, o.usual, estimates) for o in options.learned],
            *(self.costs, self._look_ups, self._failures, estimates),
        )
        self._sequences: dict[str, _Sequence] = {}
        self._before: frozenset[str] = frozenset()
        self._whole, self._watches = stopwatch(), defaultdict[str, Stopwatch](stopwatch)
        self._timed: list[tuple[str, int, list[int]]] = []

    def choose(self, step: Step, rows: Sequence[int], limits: Sequence[int]) -> Choice:
        """Learn from the step that was decoded, and choose the next drafts of the method's rows.

        limits: draft tokens that each row of the batch has room for; other methods' rows use
        theirs.
        """
        self._follow(step, rows, len(limits))
        sequences = {row: self._learn(step, row) for row in rows}
        self._time(step)
        ready = [row for row in rows if limits[row]]
        if not ready:
            return Choice()
        batch = Batch(
            limits={sequences[row].id: limits[row] for row in ready},
            missing=lambda drafter: self._ready(drafter, [sequences[row].id for row in ready]),
            begin=self._look_up_in,
            predicted={sequences[row].id for row in ready if sequences[row].prediction},
            greedy=all(step.greedy(row) for row in range(len(limits))),
            others=len(limits) - len(ready),
        )
        decision = self.controller.choose(batch)
        if not decision.found:
            return Choice()
        granted, taken = self.controller.chains(decision)
        lengths = {ready[i]: granted[i] for i in taken}
        tokens = {
            ready[i]: list(found.tokens[: granted[i]])
            for i, found in enumerate(decision.found)
            if i not in taken
        }
        for row, draft in tokens.items():
            sequences[row].looked_up = draft
        if not lengths:
            return Choice(tokens)
        for row in lengths:
            sequences[row].used = decision.arm.drafter
        return Choice(tokens, decision.arm.drafter, lengths)

    def author(self, request: str) -> str:
        """Return who drafted what is chosen for a request."""
        one = self._sequences.get(request)
        if one is None:
            return NOBODY
        return self._methods[one.used] if one.used else one.author

    def undrafted(self, requests: Iterable[str]) -> None:
        """Note that the chosen drafter drafted nothing for these requests."""
        for request in requests:
            if request in self._sequences:
                self._sequences[request].used = None

    def restart(self) -> None:
        """Begin every request anew, after a failure in the middle of `choose`."""
        self._timed.clear()
        for sequence in self._sequences.values():
            self.controller.forget(sequence.id)
        self._sequences.clear()

    @contextmanager
    def timed(self, drafter: str, tokens: int, requests: Sequence[str]) -> Iterator[None]:
        """Time a drafter's drafts of so many tokens for some requests, of any method."""
        missing = self._missing(drafter, requests)
        self._watches[drafter].start()
        yield
        self._watches[drafter].stop()
        if tokens and drafter in self._methods:
            self._timed.append((drafter, tokens, missing))

    def _ready(self, drafter: str, requests: Sequence[str]) -> list[int] | None:
        return None if self._failures.rests(drafter) else self._missing(drafter, requests)

    def _missing(self, drafter: str, requests: Sequence[str]) -> list[int]:
        unread = self._unread.get(drafter)
        return [unread(one) if unread else 0 for one in requests]

    def _look_up_in(self, name: Hashable) -> None:
        one = self._sequences[str(name)]
        self._look_ups.begin(
            *(one.id, one.text, one.scope), greedy=one.greedy, prediction=one.prediction
        )

    def _time(self, step: Step) -> None:
        """Learn what the step brought, where it only decoded and no request had to be waited
        for."""
        self._whole.stop()
        drafting = 0.0
        for drafter, levels, missing in self._timed:
            seconds = self._watches[drafter].seconds()
            self.controller.drafted(levels, seconds, missing)
            drafting += seconds
        names = [step.request(row) for row in range(len(step.sampled))]
        verified = [step.verified(row) for row in range(len(names))]
        decoding = all(
            new and read == drafted + 1
            for new, read, drafted in zip(step.sampled, verified, step.drafted(), strict=True)
        )
        if decoding and names and self._before.issuperset(names):
            tokens = sum(map(len, step.sampled))
            seconds = self._whole.seconds()
            self.controller.finished(Finished(len(names), tokens, sum(verified), seconds, drafting))
        self._before, self._timed = frozenset(names), []
        self._whole.start()

    def _follow(self, step: Step, rows: Sequence[int], batch: int) -> None:
        """End requests that are gone, and keep other methods' responses for later look-ups."""
        for request in step.gone(self._sequences):
            self._end(self._sequences.pop(request))
        self._past.work()
        for row in set(range(batch)).difference(rows) if self._past.capacity else ():
            other = self._known(step, row)
            other.skipped = other.prompt_tokens  # its prompt is never looked up in
            other.follow(step, row)

    def _learn(self, step: Step, row: int) -> _Sequence:
        """Learn what the target accepted of a row's draft."""
        if step.request(row) not in self._sequences:
            self.authors.begin(step.asked(row)[0])
        one = self._known(step, row)
        new, drafted = step.sampled[row], step.drafted()[row]
        one.follow(step, row)
        if new:
            if len(one.answer) > len(new):  # the first token ends the prompt's reading
                self.authors.wrote(one.asked, self.author(one.id) if drafted else NOBODY)
            draft = None if one.used is None or not drafted else (len(new) - 1, drafted)
            self.controller.learn(one.id, new, drafted if draft is None else 0, draft)
            one.used, one.looked_up = None, []
        return one

    def _known(self, step: Step, row: int) -> _Sequence:
        name = step.request(row)
        if name not in self._sequences:
            asked, scope = step.asked(row)
            begins, predicted = step.prompt_tokens(row), step.predicted(row)
            prediction = Prediction(predicted, begins) if predicted else None
            self._sequences[name] = _Sequence(
                *(name, asked, scope, begins, prediction),
                greedy=step.greedy(row),
                kept=step.kept(row),
            )
        return self._sequences[name]

    def _end(self, sequence: _Sequence) -> None:
        if sequence.kept:
            self._past.add(sequence.scope, sequence.answer)
        self.controller.forget(sequence.id)


REMEMBERED = 4096
"""Most requests that are remembered: one that was given up is never asked about."""


class Authors:
    """Remember whose draft each decode step of a request verified, in order; NOBODY's for a step
    without one."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[str]] = OrderedDict()

    def begin(self, request: str) -> None:
        """Begin a request, and forget an earlier attempt at it. One without an id is not asked
        about."""
        if not request:
            return
        self._of[request] = []
        self._of.move_to_end(request)
        if len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def wrote(self, request: str, drafter: str) -> None:
        """Add a step that verified this drafter's draft."""
        if request in self._of:
            self._of[request].append(drafter)

    def take(self, request: str) -> list[str]:
        """Return and forget the drafters of a request that has ended."""
        return self._of.pop(request, [])
