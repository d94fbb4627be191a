"""Judge whether a tuned head drafts better than its parent, on answers that neither has seen."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from schemas import LEAST_CONVERSATIONS, Gain, Sample, Verdict
from training.heads.head import Head
from training.heads.teacher import Teacher
from training.precision import arithmetic, autocast

DRAFTED = 4
"""Tokens of a chain, or fewer if the head drafts fewer."""
LONGEST = 2048
"""Tokens of a held answer with its prompt; a longer one loses its first tokens."""
LARGE_GROUP = 10
"""Held conversations from which on a group of its own may not lose."""
REPLAY = "replay"
"""Fit id of answers that were not served, which are a group of their own."""
RESAMPLES = 2000
INTERVAL = (0.025, 0.975)


@dataclass(frozen=True)
class Measured:
    """How many tokens of each head's chains a held answer accepts, summed over its places."""

    conversation: str
    groups: tuple[str, ...]
    places: int
    parent: int
    candidate: int


def judge(teacher: Teacher, parent: Head, candidate: Head, held: Sequence[Sample]) -> Verdict:
    """Compare two heads of one shape on held answers of the target.

    A chain is drafted greedily at every place of an answer, and accepted as far as it equals the
    answer. That is what one-hot verification accepts at the answer's own temperature, since the
    answer is a draw of the target.
    """
    fit_id = max(held, key=lambda sample: sample.time).fit_id if held else ""
    measured = []
    for sample in held:
        prompt, answer = sample.prompt_token_ids, sample.answer_token_ids
        if len(answer) < 2:  # the target itself gives the first token
            continue
        ids = torch.tensor([[*prompt, *answer][-LONGEST:]], device=teacher.device)
        first = max(1, ids.shape[1] - len(answer))
        states = teacher.states(ids, torch.ones_like(ids), parent.captures)
        chains = [_accepted(head, ids, states, first) for head in (parent, candidate)]
        counts = [int(chain.sum()) for chain in chains]
        groups = _groups(sample, fit_id)
        measured.append(Measured(sample.conversation, groups, len(chains[0]), *counts))
    return verdict(measured)


def _groups(sample: Sample, fit_id: str) -> tuple[str, ...]:
    if sample.fit_id == REPLAY:
        return (REPLAY,)
    band = "temperature 0" if sample.temperature == 0 else "sampled"
    # Another fit numbers other clusters.
    return (f"cluster {sample.cluster}", band) if sample.fit_id == fit_id else (band,)


def verdict(measured: Sequence[Measured]) -> Verdict:
    """Decide by the intervals: better over all served answers, and worse in no large group."""
    served = [m for m in measured if REPLAY not in m.groups]
    conversations = len({m.conversation for m in served})
    if conversations < LEAST_CONVERSATIONS:
        why = f"{conversations} held conversations are too few: {LEAST_CONVERSATIONS} are needed"
        return Verdict(better=False, reason=why)
    overall, groups = _gain(served), sorted({g for m in measured for g in m.groups})
    by_group = {g: _gain([m for m in measured if g in m.groups]) for g in groups}
    lost = [g for g, one in by_group.items() if one.conversations >= LARGE_GROUP and one.high < 0]
    reason: str | None = None
    if overall.low <= 0:
        low, high = (f"{100 * bound:+.1f}%" for bound in (overall.low, overall.high))
        reason = f"not better beyond the interval: {low} to {high} tokens per step"
    elif lost:
        reason = f"worse beyond the interval in {', '.join(lost)}"
    return Verdict(better=reason is None, reason=reason, overall=overall, by_group=by_group)


def _gain(measured: Sequence[Measured]) -> Gain:
    """Resample whole conversations, whose answers resemble each other."""
    names = {name: i for i, name in enumerate(dict.fromkeys(m.conversation for m in measured))}
    sums = np.zeros((3, len(names)))
    for m in measured:
        # Each place of an answer is a step, which has one token of the target's own.
        sums[:, names[m.conversation]] += (m.places, m.places + m.parent, m.places + m.candidate)
    places, parent, candidate = sums.sum(1)
    low, high = np.quantile(_resampled(sums), INTERVAL)
    return Gain(
        conversations=len(names),
        parent=parent / places,
        candidate=candidate / places,
        low=low,
        high=high,
    )


def _resampled(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the relative gain in each resample, [RESAMPLES]; sums: [3, conversations]."""
    count = sums.shape[1]
    times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    _, parent, candidate = sums @ times.T
    return np.asarray(candidate / parent - 1)


@torch.no_grad()
def _accepted(head: Head, ids: Tensor, states: Tensor, first: int) -> Tensor:
    """Return the accepted tokens of the chain at each place of an answer, int64 [places].

    ids: [1, t], whose answer begins at `first`. The target itself gives the first token after a
    place, so that drafts begin with the one after that.
    """
    with autocast(ids.device):
        places = torch.arange(first - 1, ids.shape[1] - 2, device=ids.device)
        labels = F.pad(ids[:, 1:], (0, 1))
        states = states.to(arithmetic(ids.device))
        outputs = head.drafts(labels, states, torch.ones_like(ids), DRAFTED)
        text = F.pad(ids[0], (0, DRAFTED), value=-1)
        same = []
        for position, output in enumerate(outputs):
            best = head.logits(output[0, places]).argmax(-1)
            drafted = best if head.vocabulary is None else head.vocabulary[best]
            same.append(drafted == text[places + 2 + position])
    return torch.stack(same).long().cumprod(0).sum(0)
