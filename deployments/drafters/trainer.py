"""Tune an application's heads on its answers, and offer what is better as canaries."""

import logging
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import get_args

from deployments.artifacts import exchanged_heads
from deployments.drafters.past_rounds import PastRounds
from deployments.drafters.rounds import (
    answer_tokens,
    are_enough,
    held_samples,
    lacking,
    round_samples,
    span_of,
    whole_conversations,
)
from deployments.drafters.samples import Samples
from deployments.drafters.tuning import MachineLock, Tuning, TuningError, remove_forgotten
from deployments.drafters.versions import VersionStore
from deployments.metrics import DrafterMetrics
from schemas import AppConfig, HeadOrigin, HeadPart, HeadsInForce, Sample, TuningJob, Verdict
from workers.bundle import Bundle
from workers.user_cache import user_cache

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Time between two looks at samples and versions."""
PASSES, YOUNG_PASSES, NEW_PASSES = 3, 5, 10
YOUNG_TOKENS = 1_000_000
"""Tokens from which on a head that began with nothing is only tuned."""
MOST_STARTS = 3
"""Starts of a job whose process or actor is killed, by the system without memory for example."""
CANARY_SHARE = 0.1
REPLAY = "replay.jsonl"
"""File in the bundle's folder with answers that are mixed into every round."""


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
        place = sha256(f"{samples.uri} {bundle.path.resolve()}".encode()).hexdigest()[:16]
        self._folder = (folder or user_cache("tuning").resolve()) / place
        self._parts = trained_parts(config, bundle)
        self._past = PastRounds(versions)
        self._tuning: Tuning | None = None
        self._alone = MachineLock(self._folder)
        """Other processes of this machine may train the same heads."""
        self._lacking = set[HeadPart]()
        """Parts for which it was said what a round lacks."""
        self._look = 0.0
        self._problem: str | None = None
        self._metrics = DrafterMetrics()

    def step(self) -> None:
        """Begin a round, or take its result, as is due. Waits for the store. Raises nothing."""
        now = time.monotonic()
        if now < self._look:
            return
        try:
            self._go_on()
        except Exception as error:  # each file system has exceptions of its own
            self._tell(f"{error or type(error).__name__}")
        else:
            self._tell(None)
        self._look = now + LOOK_SECONDS

    def hold(self) -> None:
        """Hold the round that runs while requests do, and let it continue otherwise.

        `step` may wait for the store meanwhile, in another thread. Raises nothing.
        """
        tuning = self._tuning
        if tuning is not None and tuning.running:
            tuning.hold(self._busy())

    def _go_on(self) -> None:
        tuning = self._tuning
        if tuning is None:
            self._begin()
            return
        wanted = self._is_wanted(tuning, self._versions.in_force())
        why = self._samples.why_to_drop([*tuning.samples, *tuning.held])
        if not wanted or why is not None:
            logger.info("the round of %s ends: %s", tuning.job.part, why or "it is not wanted")
            self._drop(tuning)
        elif tuning.killed and self._past.of(tuning.job.part).starts < MOST_STARTS:
            self._start(tuning)
        elif not tuning.running:
            self._finish(tuning)

    def _begin(self) -> None:
        remove_forgotten(self._folder, self._samples.why_to_drop)
        heads = self._versions.in_force()
        if heads.training not in (None, *self._parts):
            self._note(None)  # of a service with other methods, which this one has replaced
        job = self._folder / "job"
        tuning: Tuning | None = None
        if job.exists() and self._alone.taken():
            tuning = self._continued(Tuning.left(job), heads)
        if tuning is None and not heads.paused:
            free = [part for part in self._parts if part not in heads.canaries]
            # First the part that was asked for, then the one whose last round is the longest ago.
            free.sort(key=lambda part: (part != heads.training, self._past.of(part).seen))
            tuning = next(filter(None, (self._prepared(p, heads, job) for p in free)), None)
        if tuning is not None:
            part = tuning.job.part
            self._note(part)
            if self._past.of(part).starts < MOST_STARTS:  # else the next step takes it as failed
                logger.info("tuning %s on %s answers", part, len(tuning.samples))
                self._start(tuning)
            self._tuning = tuning

    def _start(self, tuning: Tuning) -> None:
        self._past.began(tuning.job.part)
        tuning.start()

    def _continued(self, left: Tuning | None, heads: HeadsInForce) -> Tuning | None:
        """Return a job that a killed process has left, unless its result would come too late, its
        samples have to go, or it is another target's."""
        if left is None:
            return None
        # The mark of an erasure may be gone; by then the erased samples have expired.
        if self._is_wanted(left, heads) and not self._samples.any_unwanted(
            [*left.samples, *left.held]
        ):
            return left
        left.remove()
        self._past.dropped(left.job.part)
        return None

    def _is_wanted(self, tuning: Tuning, heads: HeadsInForce) -> bool:
        """Return whether a round may still give a canary.

        It may not once its parent has been replaced: its head has learned what the parent had,
        which an operator may have rolled back. Nor may it if somebody has deleted its files.
        """
        part = tuning.job.part
        free = part in self._parts and part not in heads.canaries and not heads.paused
        newest = heads.number(part) == tuning.job.parent_number
        return free and newest and tuning.job.folder.is_dir()

    def _prepared(self, part: HeadPart, heads: HeadsInForce, folder: Path) -> Tuning | None:
        """Return a round of a part, None if there are not enough new samples or if another process
        trains."""
        kept, past = self._samples.kept(), self._past.of(part)
        since = past.seen
        due = part == heads.training or are_enough(kept, since, past.in_vain)
        if not due:
            return None
        kept = whole_conversations(kept)
        if not self._suffice(part, kept) or not self._alone.taken():
            return None
        learned, held = round_samples(kept, since), held_samples(kept)
        number = heads.number(part)
        parent = self._head(part, number)
        replay = self._bundle.path / REPLAY
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
            return Tuning.prepare(job, learned, held)
        except TuningError as error:
            self._failed(part, error)
            self._note(None)
            self._past.ended(part, span_of(learned).last, better=False)
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
        part, better = tuning.job.part, False
        try:
            verdict = tuning.verdict()
        except TuningError as error:
            self._failed(part, error)
        else:
            better = verdict.better
            self._judged(tuning, verdict)
        self._past.ended(part, span_of(tuning.samples).last, better)
        self._drop(tuning)

    def _failed(self, part: HeadPart, error: TuningError) -> None:
        logger.error("tuning %s has failed: %s", part, error)
        self._metrics.tuning_rounds.inc(tags={"part": part, "outcome": "failed"})

    def _judged(self, tuning: Tuning, verdict: Verdict) -> None:
        part = tuning.job.part
        if verdict.better:
            number = self._stored(tuning, verdict)
            self._versions.try_out(number, CANARY_SHARE)
            logger.info("version %s of %s is the canary", number, part)
        else:
            logger.info("the tuned %s is refused: %s", part, verdict.reason)
        outcome = "better" if verdict.better else "refused"
        self._metrics.tuning_rounds.inc(tags={"part": part, "outcome": outcome})
        self._metrics.tuned_tokens.inc(tuning.job.tokens, tags={"part": part})

    def _stored(self, tuning: Tuning, verdict: Verdict) -> int:
        """Return the version of a round's head, which a try before this one may have stored."""
        job, span = tuning.job, span_of(tuning.samples)
        for version in self._versions.all():
            known = version.part, version.parent, version.samples, version.verdict
            if known == (job.part, job.parent_number, span, verdict):
                return version.number
        origin = HeadOrigin(
            part=job.part,
            parent=job.parent_number,
            created=time.time(),
            samples=span,
            verdict=verdict,
        )
        return self._versions.add(job.out, origin).number

    def _drop(self, tuning: Tuning) -> None:
        tuning.remove()
        self._past.dropped(tuning.job.part)
        self._note(None)  # before the round is forgotten: else it would begin again
        self._tuning = None

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            logger.warning("no head is tuned until this is fixed: %s", problem)
        self._problem = problem


def trained_parts(config: AppConfig, bundle: Bundle) -> list[HeadPart]:
    """Return the heads that the served methods draft with in engines that exchange heads."""
    used = {part for parts in exchanged_heads(config, bundle).values() for part in parts}
    return [part for part in get_args(HeadPart) if part in used]
