"""Tune an application's heads on its responses, in rounds, and offer what is better as canaries."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import chain, islice, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import get_args

from deployments.artifacts import exchanged_heads
from deployments.errors import Troubles
from deployments.head_training.samples import Cluster, Samples
from deployments.head_training.tuning import MachineLock, Tuning, TuningError, remove_forgotten
from deployments.head_training.versions import VersionStore
from schemas import (
    LEAST_CONVERSATIONS,
    AppConfig,
    HeadOrigin,
    HeadPart,
    HeadsInForce,
    PastRounds,
    Sample,
    SampleSpan,
    TuningJob,
    Verdict,
)
from schemas.head_training import HELD_BACK
from workers.bundle import Bundle, user_cache

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Time between two looks at samples and versions."""
PASSES, YOUNG_PASSES, NEW_PASSES = 3, 5, 10
YOUNG_TOKENS = 1_000_000
"""Tokens from which on a head that began with nothing is only tuned."""
MOST_STARTS = 3
"""Starts of a job whose process or actor is killed, by the system without memory for example."""
CANARY_SHARE = 0.1
ROUND_TOKENS = 30_000
"""New response tokens that begin a round: about this many gave 3.6% more tokens per step."""
MOST_TOKENS = 300_000
"""Tokens of a round's samples. At least half of them are older samples, if there are as many."""
MOST_HELD = 300
"""Held-out answers that a candidate is judged on."""

_TIME = attrgetter("time")
FAILED = "tuning %s has failed: %s"
REPLAY = "replay.jsonl"
"""File in the bundle's folder with responses that are mixed into every round."""


class HeadTrainer:
    """Tune the heads that an application's methods draft with, one at a time.

    `step` has to be called often, always from the same thread, and `hold` in another one. busy:
    whether requests run that a tuning on the CPU would slow down. folder: for the running job, by
    default in the user's cache.
    """

    def __init__(
        self,
        config: AppConfig,
        bundle: Bundle,
        samples: Samples,
        versions: VersionStore,
        busy: Callable[[], bool],
        folder: Path | None = None,
    ) -> None:
        self._bundle, self._feedback = bundle, config.feedback
        self._samples, self._versions, self._busy = samples, versions, busy
        place = sha256(f"{versions.uri} {bundle.path.resolve()}".encode()).hexdigest()[:16]
        self._folder = (folder or user_cache("tuning").resolve()) / place
        self._parts = trained_parts(config, bundle)
        self._tuning: Tuning | None = None
        self._alone = MachineLock(self._folder)
        """Other processes of this machine may train the same heads."""
        self._lacking = set[HeadPart]()
        """Parts for which it was said what a round lacks."""
        self._look = 0.0
        self._troubles = Troubles(logger, "no head is tuned")

    def step(self) -> None:
        """Begin a round, or take its result, as is due. Waits for the store. Raises nothing."""
        if time.monotonic() < self._look:
            return
        with self._troubles.logged():
            self._go_on()
        self._look = time.monotonic() + LOOK_SECONDS

    def hold(self) -> None:
        """Hold the round that runs while requests do, and let it continue otherwise.

        `step` may wait for the store meanwhile, in another thread. Raises nothing.
        """
        tuning = self._tuning
        if tuning is not None and tuning.running:
            tuning.hold(self._busy())

    def _go_on(self) -> None:
        heads = self._versions.in_force()
        if self._tuning is None:
            self._tuning = self._begun(heads)
        if (tuning := self._tuning) is None:
            return
        part, why = tuning.job.part, self._why_to_end(tuning, heads)
        if why is not None:
            logger.info("the round of %s ends: %s", part, why)
            self._drop(tuning)
        elif tuning.interrupted and tuning.starts < MOST_STARTS:
            logger.info("tuning %s on %s answers", part, len(tuning.samples))
            self._note(part)
            tuning.start()
        elif not tuning.running:
            self._finish(tuning)

    def _begun(self, heads: HeadsInForce) -> Tuning | None:
        """Return a job that a killed process has left, or the next one, if it is due."""
        remove_forgotten(self._folder, self._samples.why_to_drop)
        if heads.training not in (None, *self._parts):
            self._note(None)  # of a service with other methods, which this one has replaced
        job = self._folder / "job"
        if job.exists() and self._alone.taken() and (left := Tuning.left(job)) is not None:
            return left
        free = [part for part in self._parts if part not in heads.canaries and not heads.paused]
        # First the part that was asked for, then the one whose last round is the longest ago.
        free.sort(key=lambda part: (part != heads.training, _past(heads, part).seen))
        return next(filter(None, (self._prepared(part, heads, job) for part in free)), None)

    def _why_to_end(self, tuning: Tuning, heads: HeadsInForce) -> str | None:
        """Return why a round may no longer give a canary, None if it may.

        It may not once its parent has been replaced: its head has learned what the parent had,
        which an operator may have rolled back. Nor may it if somebody has deleted its files.
        """
        part = tuning.job.part
        free = part in self._parts and part not in heads.canaries and not heads.paused
        newest = heads.number(part) == tuning.job.parent_number
        if not (free and newest and tuning.job.folder.is_dir()):
            return "it is not wanted"
        return self._samples.why_to_drop([*tuning.samples, *tuning.held])

    def _prepared(self, part: HeadPart, heads: HeadsInForce, folder: Path) -> Tuning | None:
        """Return a round of a part, None if there are not enough new samples or if another process
        trains."""
        kept, past = self._samples.kept(), _past(heads, part)
        if part != heads.training and not are_enough(kept, past):
            return None
        if not self._suffice(part, kept) or not self._alone.taken():
            return None
        learned, number = round_samples(kept, past.seen), heads.number(part)
        parent, replay = self._head(part, number), self._bundle.path / REPLAY
        young = part in self._bundle.growing and self._learned_tokens(number) < YOUNG_TOKENS
        passes = NEW_PASSES if parent is None else YOUNG_PASSES if young else PASSES
        job = TuningJob(
            part=part,
            target=self._bundle.part("target").resolve(),
            parent=parent,
            own=self._head(part, 0),
            parent_number=number,
            replay=replay.resolve() if replay.is_file() else None,
            folder=folder,
            young=young,
            tokens=passes * answer_tokens(learned),
            device="cuda" if self._feedback.trainer_num_gpus else "cpu",
        )
        try:
            return Tuning.prepare(job, learned, held_samples(kept))
        except OSError as error:
            logger.error(FAILED, part, f"{folder} cannot be written: {error}")
            self._note(None)
            self._versions.round_ended(part, span_of(learned).last, better=False)
            return None

    def _suffice(self, part: HeadPart, kept: Sequence[Sample]) -> bool:
        """Return whether the samples suffice for a round that is due. If not, say so once."""
        missing = lacking(kept)
        if missing is None:
            self._lacking.discard(part)
        elif part not in self._lacking:
            self._lacking.add(part)
            logger.warning("no round of %s begins: %s", part, missing)
        return missing is None

    def _head(self, part: HeadPart, number: int) -> Path | None:
        """Return the folder of a version, None where a bundle that grows a head has none yet."""
        if number:
            return self._versions.folder(number).resolve()
        return None if part in self._bundle.growing else self._bundle.part(part).resolve()

    def _learned_tokens(self, number: int) -> int:
        """Return the tokens that a version and its parents have learned from."""
        parents = {version.number: version for version in self._versions.all()}
        tokens = 0
        while number in parents:
            tokens += parents[number].samples.tokens
            number = parents[number].parent
        return tokens

    def _note(self, part: HeadPart | None) -> None:
        """Tell operators which head is trained."""
        if self._versions.in_force().training != part:
            self._versions.train(part)

    def _finish(self, tuning: Tuning) -> None:
        """Store a head that is better and make it the canary; forget one that is not."""
        part, span = tuning.job.part, span_of(tuning.samples)
        try:
            verdict = tuning.verdict()
        except TuningError as error:
            verdict = Verdict(better=False)
            logger.error(FAILED, part, error)
        # First: a round that the store has recorded does not begin again.
        self._versions.round_ended(part, span.last, verdict.better)
        if verdict.better:
            origin = HeadOrigin(
                part=part,
                parent=tuning.job.parent_number,
                created=time.time(),
                samples=span,
                verdict=verdict,
            )
            number = self._versions.add(tuning.job.out, origin).number
            self._versions.try_out(number, CANARY_SHARE)
            logger.info("version %s of %s is the canary", number, part)
        elif verdict.reason:
            logger.info("the tuned %s is refused: %s", part, verdict.reason)
        self._drop(tuning)

    def _drop(self, tuning: Tuning) -> None:
        tuning.remove()
        self._note(None)  # before the round is forgotten: else it would begin again
        self._tuning = None


def _past(heads: HeadsInForce, part: HeadPart) -> PastRounds:
    return heads.rounds.get(part, PastRounds())


def trained_parts(config: AppConfig, bundle: Bundle) -> list[HeadPart]:
    """Return the heads that the served methods draft with in engines that exchange heads."""
    used = {part for parts in exchanged_heads(config, bundle).values() for part in parts}
    return [part for part in get_args(HeadPart) if part in used]


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
