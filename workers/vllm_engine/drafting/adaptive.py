"""Every step the drafter that pays, for the sequences of a shared vLLM engine's adaptive method."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from workers.drafting.arm import Arm
from workers.drafting.backlog import Backlog
from workers.drafting.goodput import Choice as Granted
from workers.drafting.goodput import Offer, choose
from workers.drafting.lookup.foreteller import Foreteller
from workers.drafting.lookup.past import PAST_BYTES, PastAnswers
from workers.drafting.names import LOOK_UPS, NOBODY
from workers.drafting.plain_steps import PlainSteps
from workers.drafting.rest import Rest
from workers.drafting.step_costs import StepCosts
from workers.vllm_engine.drafting.authors import Authors

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
    past_bytes: int = PAST_BYTES

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
    """foretold: by row the tokens that are verified. drafted: by row how many of the drafter's are;
    it is None where nobody drafts."""

    foretold: Mapping[int, list[int]] = field(default_factory=dict)
    drafter: str | None = None
    drafted: Mapping[int, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of the longest draft."""
        return max(self.drafted.values(), default=0)

    def tokens_of(self, row: int, drafts: Mapping[int, list[int]]) -> list[int]:
        """The row's draft; `drafts` are the drafter's."""
        if row in self.drafted and row in drafts:
            return drafts[row][: self.drafted[row]]
        return self.foretold.get(row, [])


class Step(Protocol):
    """What has to be known of a step that was decoded: vLLM's, or a simulated one."""

    @property
    def sampled(self) -> Sequence[list[int]]:
        """Each row's new tokens, none where a prompt is not through yet."""
        ...

    def request(self, row: int) -> str:
        """The id of the row's request."""
        ...

    def verified(self, row: int) -> int:
        """Tokens of the row that the target has read: one and its draft, or of its prompt."""
        ...

    def drafted(self) -> Sequence[int]:
        """How many draft tokens of each row the target has checked."""
        ...

    def gone(self, known: Iterable[str]) -> list[str]:
        """Those of the known requests that have ended."""
        ...

    def greedy(self, row: int) -> bool:
        """Whether the row's request has temperature 0."""
        ...

    def asked(self, row: int) -> tuple[str, str]:
        """Return the row's request id as the caller gave it, and its scope."""
        ...

    def length(self, row: int) -> int:
        """Tokens of the row's sequence, the new ones included."""
        ...

    def tokens(self, row: int, since: int) -> list[int]:
        """Of the row's sequence, the new ones included, those from an index on."""
        ...

    def prompt_tokens(self, row: int) -> int:
        """Tokens of the row's prompt."""
        ...


class Follower(Protocol):
    """A drafter with KV of its own, which reads what came while it sat out when it drafts again."""

    def unread(self, request: str) -> int:
        """Tokens of a request that it has to read first."""
        ...


@dataclass(eq=False)
class _Sequence:
    """A request's tokens, of which the engine's process knows nothing but these: all of them, or
    but for the first `skipped`."""

    id: str
    asked: str
    scope: str
    prompt_tokens: int
    skipped: int = 0
    text: list[int] = field(default_factory=list)
    used: Arm | None = None

    def follow(self, step: Step, row: int) -> None:
        """Its new tokens."""
        self.text += step.tokens(row, self.skipped + len(self.text))

    @property
    def answer(self) -> list[int]:
        return self.text[self.prompt_tokens - self.skipped :]


class Adaptive:
    """Grants draft tokens by goodput, as our own engine's adaptive drafter does: look-ups foretell
    with a probability, learned drafters expect what they lately had, seconds are those that steps
    have taken here, from one choice to the next but for the learned drafters' drafts. All of the
    engine's answers are looked up later, those of other methods as well.

    followers: the drafters with KV of their own. rests: whether a drafter rests in this step.
    """

    def __init__(
        self,
        options: Options,
        followers: Mapping[str, Follower],
        clock: Callable[[], float] = time.perf_counter,
        rests: Callable[[str], bool] = lambda _drafter: False,
    ) -> None:
        self._past = PastAnswers(options.past_bytes)
        self._foreteller = Foreteller(least=options.least, past=self._past)
        self._arms = {one.drafter: Arm(one.method, one.tokens) for one in options.learned}
        self._followers, self._clock, self._resting = followers, clock, rests
        self.costs = StepCosts()
        self.authors = Authors()
        self._sequences: dict[str, _Sequence] = {}
        self._others: dict[str, _Sequence] = {}
        self._before: frozenset[str] = frozenset()
        self._began, self._drafting, self._steps = 0.0, 0.0, 0
        self._rest, self._plain = Rest(), PlainSteps()
        self._promise: tuple[Arm, float] | None = None

    def choose(self, step: Step, rows: Sequence[int], limits: Sequence[int]) -> Choice:
        """Learn what came of the last step, and decide for the rows of this method.

        limits: of every row of the batch the tokens that it may draft. Other methods' rows are
        verified besides.
        """
        self._time(step)
        for known in (self._sequences, self._others):
            for request in step.gone(known):
                self._end(known.pop(request))
        self._past.work()
        if self._past.capacity:
            for row in set(range(len(limits))).difference(rows):
                other = self._known(self._others, step, row)
                other.skipped = other.prompt_tokens  # nobody looks anything up in its prompt
                other.follow(step, row)
        sequences = [self._learn(step, row) for row in rows]
        if self._promise:
            arm, promised = self._promise
            arm.kept(promised, sum(max(0, len(step.sampled[row]) - 1) for row in rows))
        self._promise = None
        self._foreteller.step()
        foretold = [
            self._foreteller.foretell(sequence.id, limits[row])
            for sequence, row in zip(sequences, rows, strict=True)
        ]
        ready = [i for i, row in enumerate(rows) if limits[row]]
        if not ready or self._steps <= UNTIMED:
            return Choice()  # what a step costs is not known
        asking = [sequences[i] for i in ready]
        survival = [foretold[i].survival for i in ready]
        drafters, best = self._best(step, set(rows), limits, asking, survival)
        if self._plain.due(best.offer is not None or any(best.lengths)):
            best = replace(best, lengths=[0] * len(ready), offer=None, taken=[])
        tokens = {
            rows[i]: list(foretold[i].tokens[:length])
            for i, length in zip(ready, best.lengths, strict=True)
        }
        drafter = None if best.offer is None else drafters[best.offer]
        drafted = {rows[ready[i]]: best.lengths[i] for i in best.taken if best.lengths[i]}
        for name in self._arms:
            if name != drafter:
                self.costs.sat_out(name)
        if drafter is None or not drafted:
            return Choice(tokens)
        self._promise = self._arms[drafter], best.promised
        for i in best.taken:
            if best.lengths[i]:
                asking[i].used = self._arms[drafter]
        return Choice(tokens, drafter, drafted)

    def undrafted(self, requests: Iterable[str]) -> None:
        """The drafter that was chosen drafted nothing for these requests."""
        for request in requests:
            if request in self._sequences:
                self._sequences[request].used = None

    def restart(self) -> None:
        """Begin every request anew, after a failure that may have come between two of its parts."""
        for sequence in self._sequences.values():
            self._foreteller.end(sequence.id)
            for arm in self._arms.values():
                arm.forget(sequence)
        self._sequences.clear()
        self._others.clear()
        self._promise, self._rest = None, Rest()

    @contextmanager
    def timed(self, drafter: str, tokens: int, requests: Sequence[str]) -> Iterator[None]:
        """Around the drafts of so many tokens for some requests, whoever asked for them."""
        backlog = self._backlog(drafter, requests)
        began = self._clock()
        yield
        seconds = self._clock() - began
        if tokens and drafter in self._arms:
            self.costs.saw_drafting(drafter, backlog.whole(tokens), seconds)
            self._drafting += seconds

    def _best(
        self,
        step: Step,
        rows: set[int],
        limits: Sequence[int],
        asking: Sequence[_Sequence],
        survival: Sequence[Sequence[float]],
    ) -> tuple[list[str], Granted]:
        """The drafter of each offer, and what brings the most tokens a second."""
        names = tuple(one.id for one in asking)
        began = self._clock()
        drafters, offers = ([], []) if self._rest.lasts(names) else self._offers(asking)
        beside = [limit for row, limit in enumerate(limits) if row not in rows]
        verified_beside, everybody = len(beside) + sum(beside), len(limits)
        context = sum(step.length(row) for row in range(everybody))
        best = choose(
            survival,
            offers,
            lambda verified: self.costs.step.of(verified + verified_beside, everybody, context),
            tokens_beside=len(beside),
        )
        if offers:
            spent = self.costs.step.in_forwards(self._clock() - began)
            # how many tokens each draft has is decided at every step here
            self._rest.after(names, best, spent if best.offer is None else 0.0)
        return drafters, best

    def _offers(self, asking: Sequence[_Sequence]) -> tuple[list[str], list[Offer]]:
        drafters, offers = list[str](), list[Offer]()
        for name, arm in self._arms.items():
            if self._resting(name):
                continue
            backlog = self._backlog(name, [one.id for one in asking])
            for levels, chain in enumerate(arm.chains(asking), start=1):
                drafters.append(name)
                seconds = partial(self._seconds, name, levels, backlog)
                offers.append(Offer(chain, seconds))
        return drafters, offers

    def _seconds(self, name: str, levels: int, backlog: Backlog, drafted: int) -> float:
        """Of drafting for so many of the sequences that the backlog is of."""
        return self.costs.drafting(name, backlog.part(levels, drafted))

    def _backlog(self, drafter: str, requests: Sequence[str]) -> Backlog:
        """What it has to read of them first; a drafter without KV of its own reads nothing."""
        follower = self._followers.get(drafter)
        return Backlog.of([follower.unread(one) if follower else 0 for one in requests])

    def _time(self, step: Step) -> None:
        """What the step took that has just been decoded, where nothing but decoding was in it and
        nobody had to wait for a request."""
        now = self._clock()
        seconds = now - self._began - self._drafting
        names = [step.request(row) for row in range(len(step.sampled))]
        verified = [step.verified(row) for row in range(len(names))]
        decoding = all(
            came and read == drafted + 1
            for came, read, drafted in zip(step.sampled, verified, step.drafted(), strict=True)
        )
        if decoding and names and self._before.issuperset(names):
            self._steps += 1
            if self._steps > UNTIMED:
                context = sum(step.length(row) for row in range(len(names)))
                self.costs.step.saw(verified, context, seconds)
        self._before, self._began, self._drafting = frozenset(names), now, 0.0

    def _learn(self, step: Step, row: int) -> _Sequence:
        sequence = self._sequence(step, row)
        came, drafted = step.sampled[row], step.drafted()[row]
        sequence.follow(step, row)
        if came:
            used = sequence.used
            if len(sequence.answer) > len(came):  # the first token ends the prompt's reading
                drafter = used.name if used else LOOK_UPS
                self.authors.wrote(sequence.asked, drafter if drafted else NOBODY)
            self._foreteller.came(sequence.id, came, drafted if used is None else 0)
            seen = used.saw(sequence, len(came) - 1, drafted) if used and drafted else None
            for arm in self._arms.values():
                if arm is not used:
                    arm.sat_out(sequence)
                    if seen:
                        arm.heard(sequence, *seen)
            sequence.used = None
        return sequence

    def _sequence(self, step: Step, row: int) -> _Sequence:
        new = step.request(row) not in self._sequences
        sequence = self._known(self._sequences, step, row)
        if new:
            self.authors.begin(sequence.asked)
        self._foreteller.begin(sequence.id, sequence.text, sequence.scope, greedy=step.greedy(row))
        return sequence

    @staticmethod
    def _known(among: dict[str, _Sequence], step: Step, row: int) -> _Sequence:
        name = step.request(row)
        if name not in among:
            asked, scope = step.asked(row)
            among[name] = _Sequence(name, asked, scope, step.prompt_tokens(row))
        return among[name]

    def _end(self, sequence: _Sequence) -> None:
        self._past.add(sequence.scope, sequence.answer)
        self._foreteller.end(sequence.id)
        for arm in self._arms.values():
            arm.forget(sequence)
