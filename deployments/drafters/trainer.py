"""Tune an application's heads on its answers, and offer what is better as canaries."""

import fcntl
import logging
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, get_args

from deployments.artifacts import exchanged_heads
from deployments.drafters.samples import Samples
from deployments.drafters.tuning import Tuning, TuningError
from deployments.drafters.versions import VersionStore
from deployments.metrics import DrafterMetrics
from schemas import (
    LEAST_CONVERSATIONS,
    AppConfig,
    HeadOrigin,
    HeadPart,
    HeadsInForce,
    Sample,
    SampleSpan,
    TuningJob,
    Verdict,
)
from workers.bundle import Bundle
from workers.user_cache import user_cache

logger = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Time between two looks at samples and versions."""
ROUND_TOKENS = 30_000
"""New answer tokens that begin a round: about so many gave 3.6% more tokens per step."""
MOST_TOKENS = 300_000
"""Tokens of a round's samples. At least half of them are older samples, if there are as many."""
MOST_HELD = 300
"""Held answers that a candidate is judged on, the newest ones."""
PASSES = 3
MOST_STARTS = 3
"""Starts of a job whose process is killed, by the system without memory for example."""
CANARY_SHARE = 0.1
REPLAY = "replay.jsonl"
"""File in the bundle's folder with answers that are mixed into every round."""


class HeadTrainer:
    """Tune the heads that an application's methods draft with, one at a time.

    `step` has to be called often, always from the same thread. busy: whether requests run that a
    tuning on the CPU would slow down. folder: for the running job, by default in the user's cache.
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
        self._seen: dict[HeadPart, float | None] = dict.fromkeys(trained_parts(config, bundle))
        """By part, the time of the newest sample of its last round, if that is known."""
        self._tuning: Tuning | None = None
        self._lock: IO[bytes] | None = None
        self._look = 0.0
        self._problem: str | None = None
        self._metrics = DrafterMetrics()

    def step(self) -> None:
        """Begin a round, hold or continue it, or take its result, as is due. Raises nothing."""
        if self._tuning is not None and self._tuning.running:
            self._tuning.hold(self._busy())
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

    def _go_on(self) -> None:
        tuning = self._tuning
        if tuning is None:
            self._begin()
        elif self._samples.any_erased([*tuning.samples, *tuning.held]):
            self._drop(tuning)
        elif tuning.killed and tuning.starts < MOST_STARTS:
            tuning.start()
        elif not tuning.running:
            self._finish(tuning)

    def _is_alone(self) -> bool:
        """Return whether no other process of this machine trains the same heads."""
        if self._lock is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self._folder / "lock").open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                return False
            self._lock = lock
        return True

    def _begin(self) -> None:
        heads = self._versions.in_force()
        job = self._folder / "job"
        tuning: Tuning | None = None
        if job.exists() and self._is_alone():
            tuning = self._continued(Tuning.left(job), heads)
        if tuning is None and not heads.paused:
            free = [part for part in self._seen if part not in heads.canaries]
            # The part comes first whose last round is the longest ago.
            free.sort(key=self._newest_seen)
            tuning = next(filter(None, (self._prepared(p, heads, job) for p in free)), None)
        if tuning is not None:
            logger.info("tuning %s on %s answers", tuning.job.part, len(tuning.samples))
            tuning.start()
            self._tuning = tuning

    def _continued(self, left: Tuning | None, heads: HeadsInForce) -> Tuning | None:
        """Return a job that a killed process has left, unless its result would come too late or
        its samples have to go."""
        if left is None:
            return None
        part = left.job.part
        wanted = part in self._seen and part not in heads.canaries and not heads.paused
        newest = heads.number(part) == left.job.parent_number
        # The mark of an erasure may be gone; by then the erased samples have expired.
        if wanted and newest and not self._samples.any_unwanted([*left.samples, *left.held]):
            return left
        left.remove()
        return None

    def _prepared(self, part: HeadPart, heads: HeadsInForce, folder: Path) -> Tuning | None:
        """Return a round of a part, None if there are not enough new samples or if another process
        trains."""
        kept = self._samples.kept()
        held = sorted((s for s in kept if s.held), key=_time)[-MOST_HELD:]
        if len({sample.conversation for sample in held}) < LEAST_CONVERSATIONS:
            return None
        since = self._newest_seen(part)
        learned = [sample for sample in kept if not sample.held]
        fresh = [sample for sample in learned if sample.time > since]
        if sum(len(sample.answer_token_ids) for sample in fresh) < ROUND_TOKENS:
            return None
        if not self._is_alone():
            return None
        learned = round_samples(learned, since)
        number = heads.number(part)
        replay = self._bundle.path / REPLAY
        job = TuningJob(
            part=part,
            target=self._bundle.part("target").resolve(),
            parent=(self._versions.folder(number) if number else self._bundle.part(part)).resolve(),
            parent_number=number,
            replay=replay.resolve() if replay.is_file() else None,
            folder=folder,
            tokens=PASSES * sum(len(sample.answer_token_ids) for sample in learned),
            threads=self._feedback.trainer_threads,
            device="cuda" if self._feedback.trainer_num_gpus else "cpu",
        )
        return Tuning.prepare(job, learned, held)

    def _newest_seen(self, part: HeadPart) -> float:
        """Return the time of the newest sample that the part's last round had, 0 without one."""
        seen = self._seen[part]
        if seen is None:
            spans = (v.samples.last for v in self._versions.all() if v.part == part)
            seen = self._seen[part] = max(spans, default=0.0)
        return seen

    def _finish(self, tuning: Tuning) -> None:
        """Store a head that is better and make it the canary; forget one that is not."""
        part = tuning.job.part
        try:
            verdict = tuning.verdict()
        except TuningError as error:
            logger.error("tuning %s has failed: %s", part, error)
            self._metrics.tuning_rounds.inc(tags={"part": part, "outcome": "failed"})
        else:
            self._judged(tuning, verdict)
        self._seen[part] = _span(tuning.samples).last
        self._drop(tuning)

    def _judged(self, tuning: Tuning, verdict: Verdict) -> None:
        part = tuning.job.part
        if verdict.better:
            origin = HeadOrigin(
                part=part,
                parent=tuning.job.parent_number,
                created=time.time(),
                samples=_span(tuning.samples),
                verdict=verdict,
            )
            number = self._versions.add(tuning.job.out, origin).number
            self._versions.try_out(number, CANARY_SHARE)
            logger.info("version %s of %s is the canary", number, part)
        else:
            logger.info("the tuned %s is refused: %s", part, verdict.reason)
        outcome = "better" if verdict.better else "refused"
        self._metrics.tuning_rounds.inc(tags={"part": part, "outcome": outcome})
        self._metrics.tuned_tokens.inc(tuning.job.tokens, tags={"part": part})

    def _drop(self, tuning: Tuning) -> None:
        tuning.remove()
        self._tuning = None

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            logger.warning("no head is tuned until this is fixed: %s", problem)
        self._problem = problem


def trained_parts(config: AppConfig, bundle: Bundle) -> list[HeadPart]:
    """Return the heads that the served methods draft with in engines that exchange heads."""
    used = {part for parts in exchanged_heads(config, bundle).values() for part in parts}
    return [part for part in get_args(HeadPart) if part in used]


def round_samples(learned: Sequence[Sample], since: float) -> list[Sample]:
    """Return the samples of one round, at most MOST_TOKENS.

    The newest ones after `since` have up to half of the tokens, or more if there are no older ones
    to fill the rest, which replay what the head has learned before.
    """
    newest = sorted((s for s in learned if s.time > since), key=_time, reverse=True)
    # By id, which is random: older samples stand for all of their time.
    older = sorted((s for s in learned if s.time <= since), key=lambda sample: sample.id)
    recent = _within(newest, MOST_TOKENS // 2)
    older = _within(older, MOST_TOKENS - _tokens(recent))
    return older + _within(newest, MOST_TOKENS - _tokens(older))


def _within(samples: Sequence[Sample], tokens: int) -> list[Sample]:
    """Return the first samples, as many as fit into `tokens`."""
    found, left = [], tokens
    for sample in samples:
        left -= sample.tokens
        if left < 0:
            break
        found.append(sample)
    return found


def _tokens(samples: Sequence[Sample]) -> int:
    return sum(sample.tokens for sample in samples)


def _span(samples: Sequence[Sample]) -> SampleSpan:
    times = [sample.time for sample in samples]
    return SampleSpan(
        answers=len(samples), tokens=_tokens(samples), first=min(times), last=max(times)
    )


def _time(sample: Sample) -> float:
    return sample.time
