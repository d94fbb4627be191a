"""A small made-up world: three methods whose speed is known, on prompts in two clusters."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from router.fit.profile import Profile, ProfileMeta, ProfileRow, Prompt, StepRow
from schemas import DecodeStats, EncoderInfo, LoadReport, MeasuredUnder, Observation, RoutingTable

METHODS = ("naive", "draft", "ngram")
ENCODER = EncoderInfo(name="made-up", dimension=4, sha256="0" * 64)
UNDER = MeasuredUnder(machine="m", device="cpu", dtype="float32", threads=1, bundle="demo:1")
CENTROIDS = np.eye(4)[:2]

ACCEPTANCE = {
    "naive": (1.0, 1.0),
    "vllm_naive": (1.0, 1.0),
    "draft": (2.5, 2.5),
    "ngram": (1.2, 5.0),
}
"""Tokens per decode step by cluster: n-gram is the best on the second one only."""

STEP = {"naive": 0.010, "vllm_naive": 0.005, "draft": 0.015, "ngram": 0.011}


def decode_steps(acceptance: float, log_deviation: float = 0.0, tokens: int = 61) -> int:
    """Decode steps of an answer whose log acceptance lies so far from its cluster's; a method
    that accepts nothing never does."""
    deviation = log_deviation if acceptance > 1.0 else 0.0
    return round((tokens - 1) / max(1.0, acceptance * np.exp(deviation)))


def answer_seconds(method: str, cluster: int, tokens: int = 61) -> tuple[float, int]:
    """Decode seconds and target steps (prefill included) of an answer in the made-up world."""
    steps = decode_steps(ACCEPTANCE[method][cluster], tokens=tokens)
    return steps * STEP[method], steps + 1


def make_profile(
    name: str = "fit",
    per_cluster: int = 10,
    methods: Sequence[str] = METHODS,
    noise: float = 0.0,
    spread: float = 0.0,
) -> tuple[Profile, NDArray[np.float32]]:
    """noise: of log decode seconds; spread: of an answer's log acceptance around its cluster's."""
    rng = np.random.default_rng(len(name))
    prompts, rows, vectors = [], [], []
    for i in range(2 * per_cluster):
        cluster = i % 2
        prompts.append(
            Prompt(id=f"{name}-{i}", domain=("talk", "edit")[cluster], text=f"{name} prompt {i}")
        )
        vectors.append(np.eye(4)[cluster])
        for method in methods:
            steps = 1 + decode_steps(ACCEPTANCE[method][cluster], spread * rng.standard_normal())
            decode = (steps - 1) * STEP[method] * float(np.exp(noise * rng.standard_normal()))
            rows.append(
                ProfileRow(
                    prompt_id=f"{name}-{i}",
                    method=method,
                    prompt_tokens=20,
                    output_tokens=61,
                    target_steps=steps,
                    seconds=0.02 + decode,
                    prefill_seconds=0.02,
                    decode_seconds=decode,
                )
            )
    grid = [
        StepRow(method=m, batch=b, context=c, seconds=STEP[m] * (0.7 + 0.3 * b), count=50)
        for m in methods
        for b in (1, 4, 8)
        for c in (64, 512)
    ]
    meta = ProfileMeta(
        measured_under=UNDER,
        methods=tuple(methods),
        settings_hashes={m: f"hash-{m}" for m in methods},
        lossless={m: m != "fuzzy" for m in methods},
        max_tokens=128,
    )
    return Profile(meta, tuple(prompts), tuple(rows), tuple(grid)), np.asarray(vectors, np.float32)


def with_answer(row: ProfileRow, tokens: int, steps: int, step_seconds: float) -> ProfileRow:
    """Return the row with an answer of `tokens` in so many decode steps of so many seconds."""
    decode = steps * step_seconds
    return row.model_copy(
        update={
            "output_tokens": tokens,
            "target_steps": 1 + steps,
            "decode_seconds": decode,
            "seconds": 0.02 + decode,
        }
    )


def observe(
    table: RoutingTable,
    identity: str,
    used: str,
    cluster: int,
    slower: float = 1.0,
    **changes: object,
) -> Observation:
    """Return an answer of the made-up world; `slower` stretches its steps, `changes` are of its
    statistics."""
    seconds, steps = answer_seconds(used, cluster)
    stats = {
        "request_id": identity,
        "method": used,
        "temperature": 0.0,
        "prompt_tokens": 20,
        "output_tokens": 61,
        "context_length": 81,
        "target_steps": steps,
        "decode_seconds": seconds * slower,
        "total_seconds": 0.02 + seconds * slower,
        "finish_reason": "stop",
        **changes,
    }
    return Observation(
        stats=DecodeStats.model_validate(stats),
        cluster=cluster,
        fit_id=table.fit_id,
        table_version=table.version,
        policy="predicted_seconds",
        reason="preferred",
        propensity=1.0,
        time=0.0,
    )


def report(method: str, running: int = 0, waiting: int = 0, **more: object) -> LoadReport:
    """Return the load of a method's replica; `more` are other fields of the report."""
    values = {
        "replica": f"{method}-0",
        "methods": (method,),
        "running": running,
        "waiting": waiting,
        "outstanding_tokens": 60 * (running + waiting),
        "free_slots": 10_000,
        "time": 0.0,
        **more,
    }
    return LoadReport.model_validate(values)
