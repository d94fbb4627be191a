"""Which responses are kept for head training, when a round is due, and what it trains on."""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice, zip_longest
from operator import attrgetter

from schemas import LEAST_CONVERSATIONS, PastRounds, Sample, SampleSpan
from schemas.head_training import HELD_BACK

ROUND_TOKENS = 30_000
"""New response tokens that begin a round: about this many gave 3.6% more tokens per step."""
MOST_TOKENS = 300_000
"""Tokens of a round's samples. At least half of them are older samples, if there are as many."""
MOST_HELD = 300
"""Held-out answers that a candidate is judged on."""

_TIME = attrgetter("time")

Cluster = tuple[str, int]
"""A routing table's fit id, and a cluster of it."""


class Reservoir:
    """Keep samples of at most `most_tokens` tokens, prompts and responses together.

    If the reservoir is full, the largest cluster drops samples. Many similar prompts thus replace
    only each other, and a cluster that needs no more than an even share keeps all of its
    own. Within a cluster the samples with the lowest hashes go first, which leaves a uniform sample
    (bottom-k sketches, Cohen and Kaplan, 10.1145/1281100.1281133).
    """

    def __init__(self, most_tokens: int) -> None:
        self._most_tokens = most_tokens
        self._samples: dict[str, Sample] = {}
        self._ranked: dict[Cluster, list[tuple[bytes, str]]] = {}
        self._taken: Counter[Cluster] = Counter()

    def add(self, sample: Sample) -> None:
        """Add a sample unless it is there or larger than the reservoir.

        If the reservoir is full, drop others or the sample itself.
        """
        if sample.id in self._samples or sample.size > self._most_tokens:
            return
        cluster = sample.fit_id, sample.cluster
        self._samples[sample.id] = sample
        self._taken[cluster] += sample.size
        rank = blake2b(sample.id.encode(), digest_size=8).digest()
        heapq.heappush(self._ranked.setdefault(cluster, []), (rank, sample.id))
        while self._taken.total() > self._most_tokens:
            largest = max(self._taken, key=lambda one: (self._taken[one], one))
            _, lowest = heapq.heappop(self._ranked[largest])
            self._taken[largest] -= self._samples.pop(lowest).size

    def discard(self, unwanted: Callable[[Sample], bool]) -> None:
        """Remove the samples for which `unwanted` is true."""
        kept = [sample for sample in self if not unwanted(sample)]
        self._samples, self._ranked, self._taken = {}, {}, Counter()
        for sample in kept:
            self.add(sample)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._samples.values())


def lacking(kept: Sequence[Sample]) -> str | None:
    """Return what the kept samples lack for a round, None if they suffice."""
    held = len({sample.conversation for sample in held_samples(kept)})
    if held >= LEAST_CONVERSATIONS and _learned(kept):
        return None
    return (
        f"{len(kept)} answers are kept, of {held} held-out conversations (one in {HELD_BACK}) "
        f"among the {MOST_HELD} held-out answers that judge: {LEAST_CONVERSATIONS} are needed to "
        "judge a head; if prompts are long, raise feedback.sample_tokens"
    )


def are_enough(kept: Iterable[Sample], past: PastRounds) -> bool:
    """Return whether a round is due: samples after the last one have ROUND_TOKENS response tokens.

    Each round in a row that gave no better head doubles what the next one needs, up to half of what
    is kept.
    """
    learned = _learned(kept)
    fresh = answer_tokens(sample for sample in learned if sample.time > past.seen)
    wanted = min(ROUND_TOKENS << past.in_vain, answer_tokens(learned) // 2)
    return fresh >= max(ROUND_TOKENS, wanted)


def held_samples(kept: Iterable[Sample]) -> list[Sample]:
    """Return the samples that judge a head, oldest first: the newest of each cluster in turn, so
    that many samples of one cluster do not crowd out the others."""
    clusters = defaultdict[Cluster, list[Sample]](list)
    # The target itself gives a response's first token, and nothing is drafted for it.
    judging = (s for s in kept if s.held and len(s.answer_token_ids) > 1)
    for sample in sorted(judging, key=_TIME, reverse=True):
        clusters[sample.fit_id, sample.cluster].append(sample)
    in_turn = chain.from_iterable(zip_longest(*clusters.values()))
    return sorted(islice(filter(None, in_turn), MOST_HELD), key=_TIME)


def round_samples(kept: Iterable[Sample], since: float) -> list[Sample]:
    """Return the samples that a head learns from in one round, at most MOST_TOKENS.

    The newest ones after `since` have up to half of the tokens, or more if there are no older ones
    to fill the rest, which replay what the head has learned before.
    """
    learned = _learned(kept)
    newest = sorted((s for s in learned if s.time > since), key=_TIME, reverse=True)
    # By id, which is random: older samples cover the whole period.
    older = sorted((s for s in learned if s.time <= since), key=lambda sample: sample.id)
    recent = _within(newest, MOST_TOKENS // 2)
    older = _within(older, MOST_TOKENS - _tokens(recent))
    return older + _within(newest, MOST_TOKENS - _tokens(older))


def span_of(samples: Sequence[Sample]) -> SampleSpan:
    """Return the count and the time of samples. Raises ValueError if there are none."""
    times = [sample.time for sample in samples]
    return SampleSpan(
        answers=len(samples), tokens=_tokens(samples), first=min(times), last=max(times)
    )


def answer_tokens(samples: Iterable[Sample]) -> int:
    """Return the number of response tokens."""
    return sum(len(sample.answer_token_ids) for sample in samples)


def _learned(kept: Iterable[Sample]) -> list[Sample]:
    """Return the samples that rounds may learn from. A larger one leaves no space for others."""
    return [each for each in kept if not each.held and each.tokens <= MOST_TOKENS // 2]


def _within(samples: Sequence[Sample], tokens: int) -> list[Sample]:
    """Return the first samples, as many as fit into `tokens`."""
    found, left = [], tokens
    for sample in samples:
        left -= sample.tokens
        if left < 0:
            break
        found.append(sample)
    return found


def _tokens(samples: Iterable[Sample]) -> int:
    return sum(sample.tokens for sample in samples)
