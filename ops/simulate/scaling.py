"""How many replicas a simulated deployment wants over time: the rule that serves, under Ray Serve's
bounds and delays."""

from collections import deque
from math import ceil

from router.scaling import LOOK_BACK_SECONDS, wanted_replicas
from schemas import EngineConfig, MethodDeployment

LOOK_SECONDS = 1.0
"""Between two looks at the replicas. Ray Serve's are as often by default or more often; what they
see is the mean over LOOK_BACK_SECONDS."""


class Autoscaler:
    """Of one deployment. Fewer than one replica is not simulated."""

    def __init__(self, resources: MethodDeployment, engine: EngineConfig) -> None:
        self.most = resources.max_replicas
        self.least = max(1, resources.min_replicas)
        usual = engine.max_batch + ceil(engine.max_batch / 4)
        self.ongoing = resources.max_ongoing_requests or usual
        """Requests that a replica takes; what comes beyond them waits for whichever has room."""
        self.held = engine.max_waiting * self.most
        """So many wait at most. Both are as `deployments.app` has them."""
        self._resources = resources
        self._looks: deque[tuple[float, float, float]] = deque()
        self._more_since: float | None = None
        self._fewer_since: float | None = None

    def wanted(self, now: float, present: int, work: float, requests: float, queued: float) -> int:
        """Replicas from now on, of `present` that were wanted so far. work, requests: of all of
        them now, as `router.scaling` counts them; queued: requests that none of them has."""
        self._looks.append((now, work, requests))
        while self._looks[0][0] < now - LOOK_BACK_SECONDS:
            self._looks.popleft()
        mean_work, mean_requests = (
            sum(look[i] for look in self._looks) / len(self._looks) for i in (1, 2)
        )
        scale = self._resources
        found = wanted_replicas(
            mean_work, mean_requests, queued, scale.target_seconds, scale.spare_replicas
        )
        found = min(self.most, max(self.least, found))
        self._more_since = self._since(self._more_since, now, found > present)
        self._fewer_since = self._since(self._fewer_since, now, found < present)
        if self._held(self._more_since, now, scale.upscale_delay_seconds) or self._held(
            self._fewer_since, now, scale.downscale_delay_seconds
        ):
            self._more_since = self._fewer_since = None
            return found
        return present

    @staticmethod
    def _since(before: float | None, now: float, holds: bool) -> float | None:
        if not holds:
            return None
        return now if before is None else before

    @staticmethod
    def _held(since: float | None, now: float, delay: float) -> bool:
        return since is not None and now - since >= delay
