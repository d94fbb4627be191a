"""The quality of decoded answers: their distance from the target's distribution, and the
perplexity of given responses in each precision."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from ops.bench.stats import RESAMPLES, Run
from ops.common.decoding import EncodedPrompt
from ops.common.output import table, with_interval
from ops.common.prompts import Prompt
from ops.common.settings import Setup, device_of
from workers.bundle import Bundle
from workers.chat_template import encode_chat
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.model import Model, load_target

Floats = NDArray[np.float64]

PRECISIONS = ("float32", "bfloat16", "int8", "q4")
LONGEST = 512
"""Longer conversations, in tokens, have no perplexity."""
STEP_TOKENS = 32
"""Tokens of a response that are read together."""


@dataclass(frozen=True)
class Reading:
    """The target's scores of a response's tokens, each given those before it.

    nats: [tokens] -log p of the token. expected: [tokens] the expected -log p of a token drawn from
    p, its entropy; at temperature 0, -log p of the most likely token. p is under the request's
    temperature, at temperature 0 under 1. best: [tokens] the most likely tokens.
    """

    nats: Floats
    expected: Floats
    best: NDArray[np.int64]


def quality_of(
    setup: Setup,
    bundle: Bundle,
    encoded: Sequence[EncodedPrompt],
    runs: Mapping[str, Sequence[Run]],
    temperature: float,
    bar: Progress,
) -> dict[str, Any]:
    """Return the quality of each method's answers, and of each precision of the target.

    The engine's target scores the responses of the first repeat.
    """
    device = torch.device(device_of(setup.engine))
    model = load_target(bundle.part("target"), setup.engine.dtype, device)
    prompts = {item.prompt.id: item.token_ids for item in encoded}

    @cache  # at temperature 0 most responses are plain decoding's
    def read(prompt_id: str, answer: tuple[int, ...]) -> Reading:
        return _read(model, prompts[prompt_id], answer, temperature)

    found = {}
    for name, of in runs.items():
        first = sorted((run.prompt_id, run.token_ids) for run in of if run.repeat == 0)
        own = [read(*answer) for answer in bar.track(first, description=f"read {name}")]
        excess, interval = excess_nats(own)
        found[name] = {"excess_nats": excess, "excess_nats_ci95": interval}
    precisions = compare_precisions(bundle, [item.prompt for item in encoded], bar)
    return {"methods": found, "precisions": precisions}


@torch.inference_mode()
def _read(
    model: Model, before: Sequence[int], answer: Sequence[int], temperature: float
) -> Reading:
    """Let the target read a response a few tokens at a time, as steps compute it."""
    pool = model.make_pool(1, len(before) + len(answer))
    lease, found = pool.acquire(), list[torch.Tensor]()
    given = [*before, *answer[:-1]]
    starts = range(len(before), len(given), STEP_TOKENS)
    for begin, end in pairwise([0, *starts, len(given)]):
        first = max(0, len(before) - 1 - begin)
        span = Span(lease, given[begin:end], logits_from=first)
        found.append(model.forward(model.lay_out([span], pool), pool)[0])
        pool.commit(lease, range(end - begin))
    return read_answer(torch.cat(found).cpu(), answer, temperature)


@torch.inference_mode()
def read_answer(logits: torch.Tensor, tokens: Sequence[int], temperature: float) -> Reading:
    """Score a response's tokens by the target's logits [tokens, vocab] at their positions."""
    scores = logits.float() / (temperature or 1.0)
    log_p, said = scores.log_softmax(-1), torch.tensor(tokens)[:, None]
    entropy = torch.special.entr(log_p.exp()).sum(-1)
    expected = entropy if temperature > 0.0 else -log_p.amax(-1)
    nats = -log_p.gather(1, said)[:, 0]
    return Reading(nats.double().numpy(), expected.double().numpy(), log_p.argmax(-1).numpy())


def excess_nats(readings: Sequence[Reading]) -> tuple[float, tuple[float, float]]:
    """Return the mean of -log p(token) - H(p) per token, and its 95% interval.

    With q for the method's distribution, it estimates the mean of KL(q || p) + H(q) - H(p). It is 0
    for samples from p, and below 0 for methods that prefer likely tokens.
    """
    excess = np.array([float((one.nats - one.expected).sum()) for one in readings])
    tokens = np.array([one.nats.size for one in readings])
    return _with_interval(lambda drawn: excess[drawn].sum(-1) / tokens[drawn].sum(-1), tokens)


def _with_interval(
    statistic: Callable[[NDArray[np.int64]], Floats], answers: NDArray[np.int64]
) -> tuple[float, tuple[float, float]]:
    """Return a statistic of all responses, and its interval over answers drawn with replacement.

    statistic: takes indices [n, answers].
    """
    drawn = np.random.default_rng(0).integers(0, len(answers), (RESAMPLES, len(answers)))
    low, high = np.quantile(statistic(drawn), [0.025, 0.975])
    return float(statistic(np.arange(len(answers))[None, :])[0]), (float(low), float(high))


def compare_precisions(
    bundle: Bundle, prompts: Sequence[Prompt], bar: Progress
) -> dict[str, dict[str, Any]]:
    """Return the perplexity of the prompts' responses in each precision that the target has.

    Empty where no prompt has a response of at most LONGEST tokens, the prompt included.
    """
    responses = encode_responses(bundle, prompts)
    read: dict[str, list[Reading]] = {}
    for name in PRECISIONS if responses else ():
        try:
            model = load_target(bundle.part("target"), name, torch.device("cpu"))
        except ValueError:
            continue  # a target without 4-bit weights, or one that our own forward does not compute
        read[name] = [_read(model, *one, 0.0) for one in bar.track(responses, description=name)]
    return {name: figures_of(read[PRECISIONS[0]], own) for name, own in read.items()}


def encode_responses(
    bundle: Bundle, prompts: Sequence[Prompt]
) -> list[tuple[list[int], list[int]]]:
    """Tokenize the prompts that have a response of at most LONGEST tokens, prompt included. Return
    the tokens before the response, and its own.

    Leave out those whose prompt the chat template changes once it is answered.
    """
    tokenizer = bundle.tokenizer()
    found = []
    for prompt in prompts:
        if prompt.response is None:
            continue
        answer = {"role": "assistant", "content": prompt.response}
        before = encode_chat(tokenizer, prompt.messages, True)
        whole = encode_chat(tokenizer, [*prompt.messages, answer], False)
        if whole[: len(before)] == before and len(whole) <= LONGEST:
            found.append((before, whole[len(before) :]))
    return found


def figures_of(first: Sequence[Reading], other: Sequence[Reading]) -> dict[str, Any]:
    """Compare one precision with the first.

    perplexity_ratio is over the first one's perplexity, with a 95% bootstrap interval over
    responses. same_best is the share of positions with the same most likely token.
    """
    tokens = np.array([one.nats.size for one in other])
    nats, before = (np.array([one.nats.sum() for one in own]) for own in (other, first))
    more = nats - before
    ratio, interval = _with_interval(
        lambda drawn: np.exp(more[drawn].sum(-1) / tokens[drawn].sum(-1)), tokens
    )
    same = np.concatenate([one.best for one in other]) == np.concatenate([o.best for o in first])
    mean = float(nats.sum() / tokens.sum())
    return {
        "nats_per_token": mean,
        "perplexity": math.exp(mean),
        "perplexity_ratio": ratio,
        "perplexity_ratio_ci95": interval,
        "same_best": float(same.mean()),
        "responses": len(other),
    }


def quality_tables(found: Mapping[str, Any]) -> Iterable[Any]:
    """Yield a table of the methods' distances from the target and one of its precisions."""
    ratios = ("perplexity", "perplexity_ratio", "same_best")
    parts = (
        ("methods", "Distance from the target, nats per token", ["method", "excess_nats"]),
        ("precisions", "Perplexity of the responses", ["dtype", *ratios]),
    )
    for part, title, (first, *keys) in parts:
        rows = [
            [name, *(with_interval(own[key], own.get(f"{key}_ci95")) for key in keys)]
            for name, own in found[part].items()
        ]
        if rows:
            yield table(title, [first, *keys], rows)
