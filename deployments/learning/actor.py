"""The feedback actor in Ray.

A named Ray actor rather than a Serve deployment: a deployment is not a singleton during a
rollout. It is detached, since an actor owned by one ingress would die with that ingress, and it
ends itself when nobody has called for a while, so that a deleted application leaves nothing
behind. Ray restarts it after a crash; its state comes back from the store.
"""

import hashlib
import logging
import threading
import time
import uuid
from typing import Any

import ray

from deployments.learning.feedback import Feedback
from deployments.logs import log_with_serve
from router.cluster import preload
from schemas import AppConfig

logger = logging.getLogger(__name__)

NAMESPACE = "specadapt"
LEASE_SECONDS = 60.0


class FeedbackActor(Feedback):
    """`Feedback` inside Ray: ends itself when nobody has called for `LEASE_SECONDS`."""

    def __init__(self, config: AppConfig, owner: str) -> None:
        log_with_serve()
        super().__init__(config, owner)
        handle = ray.get_runtime_context().current_actor
        threading.Thread(target=self._end_when_idle, args=(handle,), daemon=True).start()
        if config.router.refit:
            threading.Thread(target=preload, daemon=True).start()  # nobody waits for it

    def _end_when_idle(self, handle: Any) -> None:
        while self.idle_seconds() < LEASE_SECONDS:
            time.sleep(LEASE_SECONDS / 10)
        logger.info("nobody has called for %.0f s: ending", LEASE_SECONDS)
        ray.kill(handle, no_restart=True)


def actor_name(application: str, config: AppConfig) -> str:
    """One actor per application and configuration: a redeployment with another configuration
    gets an actor of its own, and the old one's lease runs out."""
    digest = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
    return f"feedback:{application}:{digest}"


def feedback_actor(name: str, config: AppConfig) -> Any:
    """The actor's handle; created where it does not exist. Blocks on Ray's control store.

    Ray starts it again with the same arguments, so it stays the owner that it was at first.
    """
    options = {
        "name": name,
        "namespace": NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": 0,
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}},
    }
    return ray.remote(FeedbackActor).options(**options).remote(config, uuid.uuid4().hex)
