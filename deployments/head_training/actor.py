"""The actor of an application that keeps samples of its responses, tunes its heads on them, and
decides on canaries; and an ingress's connection to it."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from deployments.actors import (
    DRAFTERS,
    FEEDBACK,
    ActorAwayError,
    ActorLine,
    forever,
    named_actor,
    running_actors,
)
from deployments.head_training.canaries import CanaryJudge
from deployments.head_training.samples import Samples
from deployments.head_training.trainer import HeadTrainer
from deployments.head_training.versions import VersionStore
from deployments.loads import Loads, load_board
from deployments.rollout import read_by_learning, version_of
from schemas import AppConfig, LoadReport, Sample
from workers.portfolio import served_bundle
from workers.weight_files import target_hash

logger = logging.getLogger(__name__)

STEP_SECONDS = 0.25
"""Interval of looks at the load. A new request shares its cores with a tuning for at most so long,
and until its replica reports it."""
BOARD_SECONDS, TELL_SECONDS = 2.0, 10.0

SEND_SECONDS = 5.0
"""Interval of batches. Each is a file in the store until the next tidying."""
CALL_SECONDS = 30.0
"""Longest call: the first one starts the actor, and the store may be slow."""
MOST_TOKENS = 500_000
"""Tokens of prompts and responses that wait. A small answer counts as more (`Sample.size`)."""


class HeadTrainingActor:
    """Keep samples of responses. Tune heads on them and decide on canaries in threads of its own.

    Answers, versions and rounds belong to the target that was there at the start.
    """

    def __init__(self, application: str, config: AppConfig) -> None:
        bundle = served_bundle(config)
        self._application, self._config = application, config
        target = target_hash(bundle)
        self._samples = Samples(config.feedback, bundle.name, target)
        self._called = time.monotonic()
        versions = VersionStore(config.feedback, bundle.name, target)
        self._trainer = HeadTrainer(config, bundle, self._samples, versions, self._busy)
        self._judge = CanaryJudge(versions, self._reports)
        self._board: Any = None
        self._next_told = 0.0
        for work in (self._train_forever, self._hold_forever):
            threading.Thread(target=work, daemon=True).start()

    def idle_seconds(self) -> float:
        return time.monotonic() - self._called

    async def take(self, batch: Sequence[Sample]) -> None:
        """Add samples. An ingress calls with none too, since the actor ends without calls."""
        self._called = time.monotonic()
        await asyncio.to_thread(self._samples.take, batch)

    def _train_forever(self) -> None:
        while True:
            self._trainer.step()
            self._judge.step()
            self._tell()
            time.sleep(STEP_SECONDS)

    def _hold_forever(self) -> None:
        """Let requests have the cores also while the other thread waits for the store."""
        while True:
            self._trainer.hold()
            time.sleep(STEP_SECONDS)

    def _tell(self) -> None:
        """Tell the feedback actor which heads are active, again and again: it may have restarted,
        or gone back to an earlier state. Waits for nothing."""
        heads, now = self._judge.in_force, time.monotonic()
        if heads is None or now < self._next_told:
            return
        self._next_told = now + TELL_SECONDS
        try:
            for actor in running_actors(FEEDBACK, self._application):
                actor.follow_heads.remote(dict(heads.numbers))
        except Exception:  # calls of actors raise many kinds
            logger.debug("the feedback actor is not told of heads", exc_info=True)

    def _busy(self) -> bool:
        """Return whether requests share the trainer's processors. Without the replicas' board,
        assume that they do."""
        if self._config.feedback.trainer_num_gpus:
            return False
        try:
            return any(report.running or report.waiting for report in self._reports())
        except Exception:  # calls of actors raise many kinds
            logger.debug("the load board does not answer", exc_info=True)
            return True

    def _reports(self) -> Sequence[LoadReport]:
        """Return the replicas' newest reports. Raises what a call of their board raises."""
        try:
            board = self._board or load_board(self._application, self._config)
            self._board = board
            loads: Loads = board.loads.remote().future().result(BOARD_SECONDS)
        except Exception:
            self._board = None
            raise
        return loads.reports


def head_training_actor(application: str, config: AppConfig) -> Any:
    """Return the handle of an application's actor; create it if it does not exist."""
    gpus, version = config.feedback.trainer_num_gpus, version_of(read_by_learning(config))
    return named_actor(
        HeadTrainingActor, DRAFTERS, application, version, application, config, num_gpus=gpus
    )


class SampleLine:
    """Hold answers until the actor has them. Beyond MOST_TOKENS further ones are dropped.

    connect: finds or creates the actor, whose `take` gets the batches.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._line = ActorLine(connect)
        self._waiting: list[Sample] = []
        self._tokens = 0

    def add(self, sample: Sample) -> None:
        """Queue a response without waiting."""
        if self._tokens + sample.size <= MOST_TOKENS:
            self._waiting.append(sample)
            self._tokens += sample.size

    async def send(self) -> None:
        """Send what waits, which may be nothing: the actor ends without calls.

        If the actor is away, it waits for the next call.
        """
        batch = list(self._waiting)
        try:
            await self._line.ask(lambda actor: actor.take(batch), CALL_SECONDS)
        except ActorAwayError as error:
            if self._line.failures == 1:
                logger.warning("head training is away, answers wait for it: %s", error)
            return
        del self._waiting[: len(batch)]
        self._tokens -= sum(sample.size for sample in batch)

    async def send_forever(self) -> None:
        await forever(self.send, lambda _: self._line.pause(SEND_SECONDS))
