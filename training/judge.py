"""Judge whether a tuned head drafts better than its parent, on answers that neither has seen."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from schemas import LEAST_CONVERSATIONS, Gain, Sample, Verdict
from training.heads import Head
from training.packing import Text
from training.teacher import Teacher, arithmetic, autocast
from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers

DRAFTED, LOOKED_UP = 4, 16
"""Tokens of a head's chain, or fewer if it drafts fewer, and most looked-up tokens."""
LONGEST = 2048
"""Tokens of a held-out answer with its prompt; a longer one loses its first tokens."""
LARGE_GROUP = 10
"""Held-out conversations from which on a group of its own may not lose."""
REPLAY = "replay"
"""How the fit ids of responses begin that were not served. They are a group, and each fit id is."""
WORTH = 0.1
"""Gain that makes a new head worth its time: each of its forwards takes up to a tenth of a small
target's step, and less of a large one's."""
FORGOTTEN = 0.02
"""Share of tokens per step that a head may lose in one kind of replay, if it does not lose over all
of them. Single kinds have few held-out responses, and one of a dozen loses by chance."""
LEAST = 0.02
"""Least probability of looked-up tokens, as the adaptive drafter has it."""
RESAMPLES = 2000
TAIL = 0.025
"""Probability on each side of an interval."""


@dataclass(frozen=True)
class Measured:
    """Tokens and steps of a held-out answer with each head's drafts. parent: of the head that the
    candidate is compared with."""

    conversation: str
    groups: tuple[str, ...]
    parent: tuple[int, int]
    candidate: tuple[int, int]


def judge(
    teacher: Teacher,
    parent: Head | None,
    candidate: Head,
    held: Sequence[Sample],
    own: Head | None = None,
) -> Verdict:
    """Compare a candidate with its parent, on held-out responses of the target. Both read the same
    states.

    On replayed answers it is compared with `own`, the bundle's own head, if there is one: else each
    round could lose a little of what no served answer shows.

    A chain is drafted greedily at every place of a response, and accepted as far as it equals the
    answer. That is what one-hot verification accepts at the response's own temperature, since the
    answer is a draw of the target. Two heads are compared at all places. A new head, without a
    parent, is compared with look-ups in the response's own text, in the steps that decode the
    response: look-ups alone, and the better of both drafts in each step, as the adaptive drafter
    merges them.
    """
    fit_id = max(held, key=lambda sample: sample.time).fit_id if held else ""
    measured = list[Measured]()
    look_ups = LookUps(least=LEAST, past=PastAnswers())
    for sample in held:
        prompt, answer = sample.prompt_token_ids, sample.answer_token_ids
        if len(answer) < 2:  # the target itself gives the first token
            continue
        ids = torch.tensor([[*prompt, *answer][-LONGEST:]], device=teacher.device)
        first = max(1, ids.shape[1] - len(answer))
        states = teacher.states(ids, torch.ones_like(ids), candidate.captures)
        replayed = own is not None and sample.fit_id.startswith(REPLAY)
        before = own if replayed else parent
        drafted = _accepted(candidate, ids, states, first)
        if before is None:
            greedy = sample.temperature == 0
            found = _looked_up(look_ups, ids[0].tolist(), first, greedy=greedy)
            merged = [max(pair) for pair in zip(found, drafted, strict=True)]
            both = _steps(found), _steps(merged)
        else:
            found, places = _accepted(before, ids, states, first), len(drafted)
            both = (places + sum(found), places), (places + sum(drafted), places)
        measured.append(Measured(sample.conversation, _groups(sample, fit_id), *both))
    return verdict(measured, new=parent is None)


def tokens_per_step(teacher: Teacher, head: Head, held: Sequence[Text]) -> dict[str, float]:
    """Return by domain the tokens of a step, whose chain is drafted at every place of a
    response."""
    sums = defaultdict[str, list[int]](list)
    for text in held:
        if len(text.answer) < 2:  # the target itself gives the first token
            continue
        ids = torch.from_numpy(text.tokens[-LONGEST:])[None].to(teacher.device)
        first = max(1, ids.shape[1] - len(text.answer))
        states = teacher.states(ids, torch.ones_like(ids), head.captures)
        sums[text.domain] += [1 + accepted for accepted in _accepted(head, ids, states, first)]
    return {domain: float(np.mean(tokens)) for domain, tokens in sorted(sums.items())}


def _groups(sample: Sample, fit_id: str) -> tuple[str, ...]:
    if sample.fit_id.startswith(REPLAY):
        return tuple({REPLAY, sample.fit_id})
    band = "temperature 0" if sample.temperature == 0 else "sampled"
    # Another fit numbers other clusters.
    return (f"cluster {sample.cluster}", band) if sample.fit_id == fit_id else (band,)


def verdict(measured: Sequence[Measured], *, new: bool = False) -> Verdict:
    """Decide by the intervals: better over all served responses, and worse in no large group, in
    none of the kinds of replay by FORGOTTEN.

    The intervals of groups hold for all large ones at once: in a dozen, one would often lose by
    chance. A new head has to be better by WORTH, over all.
    """
    served = [m for m in measured if REPLAY not in m.groups]
    conversations = len({m.conversation for m in served})
    if conversations < LEAST_CONVERSATIONS:
        why = (
            f"{conversations} held-out conversations are too few: {LEAST_CONVERSATIONS} are needed"
        )
        return Verdict(better=False, reason=why)
    overall, names = _gain(served, TAIL), sorted({g for m in measured for g in m.groups})
    groups = {name: [m for m in measured if name in m.groups] for name in names}
    large = [g for g, ms in groups.items() if len({m.conversation for m in ms}) >= LARGE_GROUP]
    by_group = {name: _gain(ms, TAIL / max(1, len(large))) for name, ms in groups.items()}
    allowed = {name: -FORGOTTEN if name.startswith(f"{REPLAY} ") else 0.0 for name in large}
    lost = [name for name in large if by_group[name].high < allowed[name]]
    reason: str | None = None
    if overall.low <= (WORTH if new else 0.0):
        low, high = (f"{100 * bound:+.1f}%" for bound in (overall.low, overall.high))
        than = f" than look-ups by {WORTH:.0%}" if new else ""
        reason = f"not better{than} beyond the interval: {low} to {high} tokens per step"
    elif lost and not new:
        reason = f"worse beyond the interval in {', '.join(lost)}"
    return Verdict(better=reason is None, reason=reason, overall=overall, by_group=by_group)


def _gain(measured: Sequence[Measured], tail: float) -> Gain:
    """Resample whole conversations, whose answers resemble each other."""
    names = {name: i for i, name in enumerate(dict.fromkeys(m.conversation for m in measured))}
    sums = np.zeros((4, len(names)))
    for m in measured:
        sums[:, names[m.conversation]] += (*m.parent, *m.candidate)
    parent, candidate = _rates(sums.sum(1))
    low, high = np.quantile(_resampled(sums), (tail, 1 - tail))
    return Gain(conversations=len(names), parent=parent, candidate=candidate, low=low, high=high)


def _resampled(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the relative gain in each resample, [RESAMPLES]; sums: [4, conversations]."""
    count = sums.shape[1]
    times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    parent, candidate = _rates(sums @ times.T)
    return np.asarray(candidate / parent - 1)


def _rates(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return tokens per step of the parent and the candidate; sums: [4] or [4, n]."""
    return sums[::2] / sums[1::2]


@torch.no_grad()
def _accepted(head: Head, ids: Tensor, states: Tensor, first: int) -> list[int]:
    """Return the accepted tokens of the chain at each place of a response.

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
    accepted: list[int] = torch.stack(same).long().cumprod(0).sum(0).tolist()
    return accepted


def _looked_up(look_ups: LookUps, tokens: Sequence[int], first: int, *, greedy: bool) -> list[int]:
    """Return the accepted looked-up tokens at each place of `_accepted`."""
    known, accepted = list(tokens[: first + 1]), []
    look_ups.begin(0, known, "", greedy=greedy)
    for place in range(first + 1, len(tokens)):
        coming = tokens[place : place + LOOKED_UP]
        found = look_ups.look_up(0, LOOKED_UP).tokens
        same = [a == b for a, b in zip(found, coming, strict=False)]
        accepted.append([*same, False].index(False))
        look_ups.learn(0, coming, len(found))
        known.append(coming[0])
    look_ups.end(0)
    return accepted


def _steps(accepted: Sequence[int]) -> tuple[int, int]:
    """Return the tokens and steps that decode a response with so many accepted at each place."""
    place = steps = 0
    while place < len(accepted):
        place, steps = place + 1 + accepted[place], steps + 1
    return place, steps
