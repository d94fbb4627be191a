"""Prompts of three kinds, two of them in the table on disk; answers to them, and a refit."""

import numpy as np
from prompt_kinds import DIMENSION, Kinds
from routing_world import answer_seconds, make_profile, observe

from router import cluster
from router.current_fit import Fit
from router.drift import Reference
from router.fit.assign import build_table
from router.refit import RecentAnswers, Refitted, refit
from schemas import EncoderInfo, Observation, RoutingTable

WINDOW = 200
OLD, NEW = [0, 1], 2
ENCODER = EncoderInfo(name="made-up", dimension=DIMENSION, sha256="0" * 64)


class World:
    """Three kinds of prompts. The table on disk knows two of them; n-gram suits the third."""

    def __init__(self, seed: int = 0) -> None:
        self.kinds = Kinds(4, seed)
        known = self.kinds.mixed(1000, OLD)
        centroids = cluster.fit(known, 2, seed=0)
        labels = cluster.assign(centroids, known)
        profile, _ = make_profile(per_cluster=50)
        kinds = np.arange(100) % 2
        table = build_table(profile, self.kinds.prompts(kinds), centroids, ENCODER)
        distances = Reference.of_fit(centroids, known, labels).state()
        self.disk = table.model_copy(
            update={"provenance": table.provenance | {"distances": distances}}
        )
        self.fit = Fit.on_disk(self.disk)
        self.sent = 0

    def answers(self, table: RoutingTable, kinds: list[int], method: str) -> list[Observation]:
        """An answer of the method to a prompt of each kind; the third kind is answered as the
        second, in twice the tokens."""
        vectors = self.kinds.prompts(np.asarray(kinds))
        labels = cluster.assign(table.centroids, vectors)
        made = []
        for kind, vector, label in zip(kinds, vectors, labels, strict=True):
            tokens = 121 if kind >= NEW else 61
            seconds, steps = answer_seconds(method, min(kind, 1), tokens)
            self.sent += 1
            measured = {
                "prompt_tokens": 200 if kind >= NEW else 20,
                "output_tokens": tokens,
                "context_length": tokens + 20,
                "target_steps": steps,
                "decode_seconds": seconds,
            }
            answer = observe(table, str(self.sent), method, min(kind, 1), **measured)
            routed = {"cluster": int(label), "vector": cluster.packed(vector)}
            made.append(answer.model_copy(update=routed))
        return made


def recent(observations: list[Observation]) -> RecentAnswers:
    answers = RecentAnswers(DIMENSION)
    for observation in observations:
        answers.add(observation)
    return answers


def stream(world: World, table: RoutingTable, old: int = 300, new: int = 100) -> list[Observation]:
    return [
        *world.answers(table, [0, 1] * (old // 2), "draft"),
        *world.answers(table, [0, NEW] * new, "ngram"),
    ]


def refitted(world: World, sent: list[Observation]) -> Refitted:
    answers = recent(sent).all()
    made = refit(world.fit, world.disk, Reference.read(world.fit.reference.state()), answers)
    assert made is not None
    return made
