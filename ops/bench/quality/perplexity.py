"""Perplexity of given responses under one target in several precisions."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from ops.harness.boundary import InputError
from ops.harness.forwards import answer_logits
from ops.harness.prompts import Prompt
from workers.bundle import Bundle
from workers.chat_template import encode_turns
from workers.torch_engine.models.model import Model, load_target

PRECISIONS = ("float32", "bfloat16", "q4", "int8")
RESAMPLES = 4000
LONGEST = 512
"""Longer conversations, in tokens, are left out: each is read in a single forward."""


@dataclass(frozen=True)
class Response:
    """A conversation that ends with a response, in token ids."""

    before: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Scores:
    """Scores of responses under one target.

    nats: negative log-likelihood of each response. favourites: the target's most likely token at
    each position of each response.
    """

    nats: list[float]
    favourites: list[list[int]]


def compare_precisions(
    bundle: Bundle, prompts: Sequence[Prompt], dtypes: Sequence[str], seed: int, bar: Progress
) -> dict[str, Any]:
    """Return the figures of each precision over the prompts' responses.

    Raises InputError for an unknown precision, and if no prompt has a response that is short
    enough.
    """
    unknown = [name for name in dtypes if name not in PRECISIONS]
    if unknown:
        raise InputError(f"--perplexity: {unknown[0]!r} is none of {', '.join(PRECISIONS)}")
    responses = encode_responses(bundle, prompts)
    scores = {
        name: score(
            load_target(bundle.part("target"), name, torch.device("cpu")),
            bar.track(responses, description=name),
        )
        for name in dtypes
    }
    first = scores[dtypes[0]]
    return {
        "precisions": {name: figures_of(responses, first, scores[name], seed) for name in dtypes},
        "responses": len(responses),
        "response_tokens": sum(len(response.tokens) for response in responses),
    }


def encode_responses(bundle: Bundle, prompts: Sequence[Prompt]) -> list[Response]:
    """Tokenize the prompts that have a response of at most LONGEST tokens, prompt included.

    Raises InputError if there is none.
    """
    tokenizer = bundle.tokenizer()
    found = []
    for prompt in prompts:
        if prompt.response is None:
            continue
        answer = {"role": "assistant", "content": prompt.response}
        turns = encode_turns(tokenizer, [*prompt.messages, answer])
        before = [token for turn in turns[:-1] for part in turn for token in part]
        response = Response((*before, *turns[-1][0]), tuple(turns[-1][1]))
        if len(response.before) + len(response.tokens) <= LONGEST:
            found.append(response)
    if not found:
        raise InputError(f"--prompts: no prompt has a `response` of at most {LONGEST} tokens")
    return found


@torch.inference_mode()
def score(model: Model, responses: Iterable[Response]) -> Scores:
    """Score each response in one forward pass over it and its prompt."""
    scores = Scores([], [])
    for response in responses:
        logits = answer_logits(model, response.before, response.tokens)
        tokens = torch.tensor(response.tokens)[:, None]
        scores.nats.append(-float(logits.log_softmax(-1).gather(1, tokens).sum()))
        scores.favourites.append(logits.argmax(-1).tolist())
    return scores


def figures_of(
    responses: Sequence[Response], first: Scores, other: Scores, seed: int
) -> dict[str, object]:
    """Compare one precision with the first.

    perplexity_ratio is over the first one's perplexity, with a 95% bootstrap interval over
    responses. same_favourite is the share of positions with the same most likely token.
    """
    tokens = np.array([len(response.tokens) for response in responses])
    nats, plain = np.array(other.nats), np.array(first.nats)
    drawn = np.random.default_rng(seed).integers(0, len(tokens), (RESAMPLES, len(tokens)))
    ratios = np.exp((nats - plain)[drawn].sum(1) / tokens[drawn].sum(1))
    same = sum(
        ours == theirs
        for pair in zip(other.favourites, first.favourites, strict=True)
        for ours, theirs in zip(*pair, strict=True)
    )
    mean = float(nats.sum() / tokens.sum())
    return {
        "nats_per_token": round(mean, 4),
        "perplexity": round(math.exp(mean), 3),
        "perplexity_ratio": round(math.exp((nats - plain).sum() / tokens.sum()), 4),
        "perplexity_ratio_ci95": [round(float(v), 4) for v in np.quantile(ratios, [0.025, 0.975])],
        "same_favourite": round(same / int(tokens.sum()), 4),
    }
