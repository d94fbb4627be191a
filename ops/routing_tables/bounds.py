"""A trace's folder (`trace.json` has its settings, `trace.jsonl` a response a line), and the bounds
on the speedup of speculation that it gives with what steps cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ops.common.boundary import InputError
from ops.common.decoding import EncodedPrompt, answer_to, engines_of, request_of
from ops.common.settings import Setup
from ops.routing_tables.profile_store import drop_unfinished_line, refuse_other_settings
from router.fit.profile import ProfileMeta
from router.fit.speedup import BASELINE, MIN_TOKENS, harmonic_mean
from schemas import SamplingParams
from schemas.base import Schema
from schemas.json_files import records
from workers.bundle import load_bundle
from workers.methods import get_method
from workers.torch_engine.engine import load_models

Floats = NDArray[np.float64]

MOST_TOKENS = 512
"""Longest draft with a forward time of its own."""
TIMED = 8
"""Prompts whose steps are timed."""
BOUNDS = ("best_of_prompt", "oracle_combine")


class TracedAnswer(Schema):
    """A line of `trace.jsonl`.

    prompt, answer: token ids. accepted: by drafting method, the draft tokens accepted at each
    position of the response, from its second token on [answer tokens - 1].
    """

    prompt_id: str
    domain: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    accepted: dict[str, tuple[int, ...]]


def prepare(folder: Path, meta: ProfileMeta) -> set[str]:
    """Make a trace's folder, or continue it. Return the ids of the prompts that it has.

    Raises InputError if it was made under other settings.
    """
    file, answers = folder / "trace.json", folder / "trace.jsonl"
    if file.is_file() and answers.is_file():
        refuse_other_settings(file, meta)
        drop_unfinished_line(answers)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        answers.touch()
        file.write_text(meta.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {answer.prompt_id for answer in read_traces(folder)}


def read_traces(folder: Path) -> list[TracedAnswer]:
    """Return the responses of a trace. Raises InputError naming the file and line."""
    return [*records(folder / "trace.jsonl", TracedAnswer, InputError, key="prompt_id")]


def steps(accepted: Sequence[int]) -> int:
    """Return the target steps after the prefill: each emits its accepted tokens and one more."""
    position = count = 0
    while position < len(accepted):
        position += accepted[position] + 1
        count += 1
    return count


def mats(answers: Sequence[TracedAnswer], method: str) -> dict[str, Any]:
    """Return output tokens per target step, the prefill's included: of all responses (mat), and by
    domain."""

    def mat(own: Sequence[TracedAnswer]) -> float:
        if method == BASELINE:
            return 1.0
        taken = sum(1 + steps(answer.accepted[method]) for answer in own)
        return sum(len(answer.answer) for answer in own) / taken

    domains = sorted({answer.domain for answer in answers})
    return {
        "mat": mat(answers),
        "by_domain": {d: mat([a for a in answers if a.domain == d]) for d in domains},
    }


@dataclass(frozen=True)
class StepSeconds:
    """Seconds of steps with one request at a time.

    whole: of each method's step. drafting: the drafter's part. forwards: the target's forward of
    0, 1, 2, ... tokens.
    """

    whole: Mapping[str, float]
    drafting: Mapping[str, float]
    forwards: Floats

    def of(self, drafter: str, length: int, levels: int) -> float:
        """Return the seconds of a step that drafts and verifies exactly `length` tokens.

        levels: the most tokens that the drafter drafts. Drafting fewer costs in proportion, which
        flatters drafters that draft all at once.
        """
        if not length:
            return self.whole[BASELINE]
        more = self.forwards[min(length + 1, len(self.forwards) - 1)] - self.forwards[1]
        return self.whole[BASELINE] + float(more) + self.drafting[drafter] * length / levels


async def measure(setup: Setup, items: Sequence[EncodedPrompt], max_tokens: int) -> StepSeconds:
    """Time steps of every method on some of the prompts, and the target's forwards."""
    bundle = load_bundle(setup.bundle)
    spent = {name: np.zeros(3) for name in setup.names}
    with engines_of(setup, bundle, "trace") as engines:
        for at, item in enumerate([items[0], *items[:: max(1, len(items) // TIMED)][:TIMED]]):
            for name in setup.names:
                sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens if at else 16)
                request = request_of(f"trace-{at}", name, item.token_ids, sampling)
                answer = await answer_to(engines, request)
                stats = answer.stats
                if at:  # the first response warms up
                    taken = stats.target_steps - 1, stats.decode_seconds, stats.draft_seconds
                    spent[name] += taken
    if not all(steps for steps, _, _ in spent.values()):
        raise InputError("--max-tokens: the timed answers have one token; allow more")
    torch.set_num_threads(setup.engine.threads)
    target = load_models([get_method(BASELINE)], bundle, setup.engine).target
    with torch.inference_mode():
        target.measure_costs()
    return StepSeconds(
        whole={name: float(whole / steps) for name, (steps, whole, _) in spent.items()},
        drafting={name: float(draft / steps) for name, (steps, _, draft) in spent.items()},
        forwards=np.maximum.accumulate(target.costs.table(MOST_TOKENS)),
    )


def oracle_seconds(
    accepted: Mapping[str, Sequence[int]], seconds: StepSeconds, levels: Mapping[str, int]
) -> float:
    """Return the seconds when the drafter with most accepted tokens drafts just these at each step.

    Ties go to the cheapest. This is Oracle_Combine (Liu et al., section 8.2). Raises ValueError for
    responses of different lengths.
    """
    [tokens] = {len(own) for own in accepted.values()}
    position, taken = 0, 0.0
    while position < tokens:
        most = min(max(own[position] for own in accepted.values()), tokens - position - 1)
        longest = [name for name, own in accepted.items() if own[position] >= most]
        taken += min(seconds.of(name, most, levels[name]) for name in longest)
        position += most + 1
    return taken


def bounds(answers: Sequence[TracedAnswer], seconds: StepSeconds) -> dict[str, Any]:
    """Return speedups over plain decoding after the first token, over answers that count for speed.

    Harmonic means, each domain counting alike: every drafter as it is (fixed), the best drafter of
    each prompt, and of each step, which drafts exactly the accepted tokens (oracle_combine). Raises
    InputError without answers.
    """
    answers = [answer for answer in answers if len(answer.answer) >= MIN_TOKENS]
    if not answers:
        raise InputError(f"--bounds: no answer has {MIN_TOKENS} tokens; raise --max-tokens")
    names = list(answers[0].accepted)
    levels = {n: max(1, *(max(answer.accepted[n]) for answer in answers)) for n in names}
    rows = [_speedups(answer, seconds, levels) for answer in answers]
    found = {name: np.asarray([row[name] for row in rows]) for name in rows[0]}
    counts = Counter(answer.domain for answer in answers)
    weights = np.asarray([1.0 / counts[answer.domain] for answer in answers])
    means = {name: harmonic_mean(values, weights) for name, values in found.items()}
    single = max(names, key=lambda name: means[name])
    return {
        "answers": len(answers),
        "fixed": {name: means[name] for name in names},
        "best_single": {"name": single, "speedup": means[single]},
        **{name: means[name] for name in BOUNDS},
    }


def _speedups(
    answer: TracedAnswer, seconds: StepSeconds, levels: Mapping[str, int]
) -> dict[str, float]:
    plain = seconds.whole[BASELINE] * (len(answer.answer) - 1)
    accepted = answer.accepted
    taken = {name: seconds.whole[name] * steps(own) for name, own in accepted.items()}
    taken["best_of_prompt"] = min(plain, *taken.values())
    taken["oracle_combine"] = oracle_seconds(accepted, seconds, levels)
    return {name: plain / found for name, found in taken.items()}
