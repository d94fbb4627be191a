"""The service inside this process, for experiments that reach for its replicas."""

import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.app import build
from deployments.configuration import resolved
from deployments.run import APPLICATION, needed_cpus, start_local_ray, with_free_port
from deployments.transport import WITHOUT_LOOP
from ops.harness.output import standard_output_kept
from schemas import AppConfig

CALL_SECONDS = 60.0
POLL_SECONDS = 0.5
ALIVE_SECONDS = 300.0


@dataclass(frozen=True)
class OwnService:
    """A running application, its address and what no HTTP path reaches."""

    config: AppConfig
    url: str

    @property
    def replicas(self) -> int:
        """How many replicas it has when all of them live."""
        shared = self.config.layout == "shared"
        hosts = (self.config.shared,) if shared else self.config.methods
        return sum(host.max_replicas for host in hosts)

    def set_factor(self, method: str, factor: float) -> None:
        """Every recorded second of a method times `factor`, on all of its replicas."""
        self._everywhere(method, "set_replay_factor", method, factor)

    def kill(self, method: str, count: int | None = None) -> int:
        """Kill `count` replicas of a method (None: all) once all are alive; return their number."""
        pids = [place["pid"] for place in self._everywhere(method, "placement")][:count]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return len(pids)

    def handle(self, deployment: str) -> DeploymentHandle[Any]:
        """A deployment's handle, for threads without an event loop too."""
        handle = serve.get_deployment_handle(deployment, APPLICATION)
        if not handle.is_initialized:
            handle._init(**WITHOUT_LOOP)  # type: ignore[no-untyped-call]
        return handle

    def _everywhere(self, method: str, call: str, *args: Any) -> list[Any]:
        """What each of a method's replicas answers, as soon as all of them live.

        Raises TimeoutError.
        """
        handle = self.handle(method)
        count = next(m.max_replicas for m in self.config.methods if m.name == method)
        deadline = time.monotonic() + ALIVE_SECONDS
        while True:
            # one that has just died, or none at all, is an error until Ray Serve has noticed
            with suppress(RayServeException, ray.exceptions.RayError):
                results = handle.broadcast(call, *args).results(timeout_s=CALL_SECONDS)
                if len(results) == count:
                    return list(results)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method}: not all of {count} replicas answer")
            time.sleep(POLL_SECONDS)


@contextmanager
def own_service(
    config: AppConfig,
    build: Callable[[AppConfig], serve.Application] = build,
    gpus: int | None = None,
) -> Iterator[OwnService]:
    """The service on a Ray of this process's own, on a free port and with a state of its own; all
    replicas are there, and all of it is stopped at the end.

    build: makes the application of the resolved configuration. gpus: how many Ray is told that
    the machine has; None: Ray looks.
    """
    with standard_output_kept(), tempfile.TemporaryDirectory(prefix="specadapt-own-") as folder:
        state = config.feedback.model_copy(update={"state_uri": str(Path(folder) / "state")})
        http = config.http.model_copy(update={"host": "127.0.0.1", "port": 0})
        asked = config.model_copy(update={"feedback": state, "http": http, "faults": True})
        own = with_free_port(resolved(asked))
        application = build(own)
        start_local_ray(max(os.cpu_count() or 1, math.ceil(needed_cpus(own))), gpus)
        try:
            serve.start(http_options={"host": own.http.host, "port": own.http.port})
            serve.run(application, name=APPLICATION, route_prefix="/")
            yield OwnService(own, f"http://{own.http.host}:{own.http.port}")
        finally:
            serve.shutdown()  # type: ignore[no-untyped-call]
            ray.shutdown()
