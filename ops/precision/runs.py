"""The runs of `bench precision`: one target in several precisions over the same answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.progress import Progress

from ops.cli.boundary import InputError
from ops.measure.forwards import answer_logits, forward, median_seconds
from ops.measure.prompts import Prompt
from workers.bundle import Bundle
from workers.chat_template import encode_turns
from workers.torch_engine.models.model import Model

ROWS = (1, 4, 8, 16)
"""Tokens of the forwards that are timed."""
RESAMPLES = 4000


@dataclass(frozen=True)
class GivenAnswer:
    """A conversation that ends with an answer, in token ids."""

    before: tuple[int, ...]
    answer: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """What a target makes of some answers: of each the negative log-likelihood in nats, and the
    target's favourite token at every one of its tokens."""

    nats: list[float]
    favourites: list[list[int]]


def given_answers(bundle: Bundle, prompts: Sequence[Prompt], longest: int) -> list[GivenAnswer]:
    """Prompts with their responses, those of at most `longest` tokens; raises InputError where no
    prompt has a response or none is short enough."""
    tokenizer = bundle.tokenizer()
    answers = []
    for prompt in prompts:
        if prompt.response is None:
            continue
        spoken = {"role": "assistant", "content": prompt.response}
        turns = encode_turns(tokenizer, [*prompt.messages, spoken])
        before = [token for turn in turns[:-1] for part in turn for token in part]
        answer = GivenAnswer((*before, *turns[-1][0]), tuple(turns[-1][1]))
        if len(answer.before) + len(answer.answer) <= longest:
            answers.append(answer)
    if not answers:
        raise InputError(f"--prompts: none has a `response` of up to {longest} tokens")
    return answers


@torch.inference_mode()
def read(model: Model, answers: Sequence[GivenAnswer], bar: Progress, name: str) -> Reading:
    """One forward over each prompt and answer."""
    reading = Reading([], [])
    for given in bar.track(answers, description=name):
        logits = answer_logits(model, given.before, given.answer)
        said = torch.tensor(given.answer)[:, None]
        reading.nats.append(-float(logits.log_softmax(-1).gather(1, said).sum()))
        reading.favourites.append(logits.argmax(-1).tolist())
    return reading


@torch.inference_mode()
def forward_milliseconds(models: dict[str, Model]) -> dict[str, dict[str, float]]:
    """By model and number of tokens, the median of forwards that take turns."""
    runs = {(name, n): forward(model, 1, n) for name, model in models.items() for n in ROWS}
    seconds = median_seconds({f"{name} {n}": run for (name, n), run in runs.items()})
    return {name: {str(n): round(1e3 * seconds[f"{name} {n}"], 2) for n in ROWS} for name in models}


def figures_of(
    answers: Sequence[GivenAnswer], first: Reading, other: Reading, seed: int
) -> dict[str, object]:
    """Of `other`: nats per token, perplexity, the latter over that of `first` with its 95% interval
    (answers drawn with replacement), and the share of tokens with the same favourite."""
    tokens = np.array([len(given.answer) for given in answers])
    nats, plain = np.array(other.nats), np.array(first.nats)
    drawn = np.random.default_rng(seed).integers(0, len(tokens), (RESAMPLES, len(tokens)))
    ratios = np.exp((nats - plain)[drawn].sum(1) / tokens[drawn].sum(1))
    same = sum(
        a == b
        for ours, theirs in zip(other.favourites, first.favourites, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    mean = float(nats.sum() / tokens.sum())
    return {
        "nats_per_token": round(mean, 4),
        "perplexity": round(math.exp(mean), 3),
        "perplexity_ratio": round(math.exp((nats - plain).sum() / tokens.sum()), 4),
        "perplexity_ratio_ci": [round(float(v), 4) for v in np.quantile(ratios, [0.025, 0.975])],
        "same_favourite": round(same / int(tokens.sum()), 4),
    }
