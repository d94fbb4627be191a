"""Upper bounds on the requests a second that replicas can finish under any routing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np
from scipy.optimize import linprog

from ops.harness.boundary import InputError
from ops.load.arrivals import Floats
from ops.load.policies import Question
from workers.replay_engine.recording import Recording

Layout = Sequence[tuple[str, ...]]
"""The methods of each replica, one entry a replica."""


def most_requests_per_s(layout: Layout, seconds: Mapping[str, Floats], weights: Floats) -> float:
    """Return the largest rate at which some assignment of requests to replicas keeps up.

    seconds: by method, a replica's seconds per request of each kind [k]. weights [k]: each kind's
    share of the requests; they sum to 1. Solves a linear program over the rates at which kinds go
    to replicas of the same methods; a replica of several methods counts with the fastest of them.
    Raises InputError if the seconds have no solution.
    """
    groups = Counter(layout)
    costs = np.asarray([np.min([seconds[m] for m in names], axis=0) for names in groups])
    g, k = costs.shape
    # variables: the rate of kind j at group i (i * k + j), and last the whole rate
    served = np.hstack([np.tile(np.eye(k), g), -weights[:, None]])
    busy = np.zeros((g, g * k + 1))
    for i in range(g):
        busy[i, i * k : (i + 1) * k] = costs[i]
    goal = np.zeros(g * k + 1)
    goal[-1] = -1.0
    solved = linprog(goal, busy, list(groups.values()), served, np.zeros(k))
    if solved.status != 0:
        raise InputError(f"no bound on requests per second: check the seconds ({solved.message})")
    return float(solved.x[-1])


def capacity(
    layout: Layout, recording: Recording, questions: Sequence[Question], rows: int
) -> float:
    """Return the bound on routing by cluster, with `rows` sequences in every step."""
    labels = [question.cluster for question in questions]
    return most_requests_per_s(layout, *_kinds(layout, recording, questions, labels, rows))


def bounds(
    methods: Sequence[str],
    replicas: int,
    recording: Recording,
    questions: Sequence[Question],
    rows: int,
) -> dict[str, object]:
    """Return upper bounds on requests per second, with `replicas` replicas per method.

    by_cluster: each method on its own replicas, with the best assignment of clusters. by_prompt:
    the same for single prompts. shared_by_cluster: every replica hosts every method. single: one
    method on all replicas.
    """
    alike = [(m,) for m in methods for _ in range(replicas)]
    clusters = [question.cluster for question in questions]
    prompts = list(range(len(questions)))
    kinds = _kinds(alike, recording, questions, clusters, rows)
    everywhere = len(alike)
    return {
        "by_cluster": most_requests_per_s(alike, *kinds),
        "by_prompt": most_requests_per_s(
            alike, *_kinds(alike, recording, questions, prompts, rows)
        ),
        "shared_by_cluster": most_requests_per_s([tuple(methods)] * everywhere, *kinds),
        "single": {m: most_requests_per_s([(m,)] * everywhere, *kinds) for m in methods},
    }


def _kinds(
    layout: Layout,
    recording: Recording,
    questions: Sequence[Question],
    labels: Sequence[int],
    rows: int,
) -> tuple[dict[str, Floats], Floats]:
    """Mean seconds by method and kind [k], and the kinds' shares [k]; the labels name kinds."""
    kinds = sorted(set(labels))
    members = [[q for q, label in zip(questions, labels, strict=True) if label == kind]
               for kind in kinds]  # fmt: skip
    methods = {name for names in layout for name in names}
    seconds = {
        m: np.asarray([fmean(share(recording, m, q, rows) for q in kind) for kind in members])
        for m in methods
    }
    return seconds, np.asarray([len(kind) / len(questions) for kind in members])


def share(recording: Recording, method: str, question: Question, batch: int) -> float:
    """Return the replica's seconds that one answer takes if `batch` sequences share each step."""
    answer = recording.answers[method, question.features.temperature, question.token_ids]
    decode = recording.step_times.decode_seconds(method, batch, answer.prompt_tokens, answer.steps)
    return answer.prefill_seconds + answer.pace * decode / batch
