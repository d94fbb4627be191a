"""Replicas that answer with versions of a head, and the judge of their canaries."""

import itertools
import random

from observations import load
from stored_heads import drafted_answer

from deployments.head_training.canaries import CanaryJudge
from deployments.head_training.versions import VersionStore
from deployments.replica.heads import HeadTally
from schemas import LoadReport

USUAL, BETTER, SPOILT = 0.5, 0.7, 0.1
"""Chance that a draft token is accepted, of up to four in a step."""


class Replica:
    """Answers of random lengths whose versions accept as many drafts as their chances say."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.tally, self.rng = name, HeadTally(), random.Random(seed)
        self.refused: dict[int, str] = {}

    def answer(self, version: int, chance: float) -> None:
        length, tokens, steps = self.rng.randrange(20, 80), 1, 1
        # some texts are easier than others
        eased = chance * self.rng.uniform(0.6, 1.2)
        while tokens < length:
            accepted = itertools.takewhile(lambda _: self.rng.random() < eased, range(4))
            tokens, steps = tokens + 1 + len(list(accepted)), steps + 1
        self.tally.saw(drafted_answer(tokens, steps, head_versions={"eagle3": version}))

    def answer_without_head(self) -> None:
        self.tally.saw(drafted_answer(40, 20, head_versions={}))

    def report(self) -> LoadReport:
        fields = {"answers": self.tally.answers, "heads": self.tally.counts}
        return load(self.name, methods=("eagle3",), refused_heads=self.refused, **fields)


class Service:
    """Two replicas with a judge that looks after every answer. One request in ten is a canary's."""

    def __init__(self, versions: VersionStore, seed: int) -> None:
        self.versions = versions
        self.replicas = [Replica("a", seed), Replica("b", seed + 1)]
        self.chances: dict[int, float] = {}
        self.restart()

    def restart(self) -> None:
        """Start the process that judges again."""
        self.judge = CanaryJudge(self.versions, lambda: [one.report() for one in self.replicas])
        self.judge.step()

    def serve(self, answers: int) -> int:
        """Serve so many answers, fewer if what serves changes; return how many of a canary."""
        before, canaries_served = self.versions.in_force(), 0
        for index in range(answers):
            heads = self.versions.in_force()
            if heads != before:
                break
            canary = heads.canaries.get("eagle3")
            replica = self.replicas[index % 2]
            loaded = canary is not None and canary.number not in replica.refused
            serves = canary if loaded and index % 10 == 0 else None
            number = heads.number("eagle3") if serves is None else serves.number
            canaries_served += serves is not None
            replica.answer(number, self.chances[number])
            self.judge.step()
        return canaries_served

    def serve_others(self, answers: int) -> None:
        """Serve so many answers of a method without a head."""
        for _ in range(answers):
            self.replicas[0].answer_without_head()
        self.judge.step()
