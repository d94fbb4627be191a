"""The feedback actor in Ray, which restarts it after a crash; its state comes back from the
store."""

import threading
import uuid
from typing import Any

from deployments.actors import FEEDBACK, end_when_idle, named_actor
from deployments.learning.feedback import Feedback
from deployments.logs import log_with_serve
from deployments.rollout import read_by_learning, version_of
from router.cluster import preload
from schemas import AppConfig


class FeedbackActor(Feedback):
    """Run `Feedback` inside Ray."""

    def __init__(self, config: AppConfig, owner: str) -> None:
        log_with_serve()
        super().__init__(config, owner)
        end_when_idle(self.idle_seconds)
        if config.router.refit:
            threading.Thread(target=preload, daemon=True).start()  # in the background


def feedback_actor(application: str, config: AppConfig) -> Any:
    """Return the handle of an application's feedback actor; create it if it does not exist.

    Ray restarts it with the same arguments, so it stays the owner that it was at first.
    """
    owner, version = uuid.uuid4().hex, version_of(read_by_learning(config))
    return named_actor(FeedbackActor, FEEDBACK, application, version, config, owner)
