"""The service that faults befall: its processes, what it says of itself, and what it has stored."""

import os
import signal
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve
from ray.serve.exceptions import RayServeException

from deployments.actors import FEEDBACK, LOADS
from deployments.app import INGRESS
from deployments.artifacts import served_table
from deployments.learning.state_store import StateStore
from deployments.run import APPLICATION
from ops.harness.own_service import CALL_SECONDS, OwnService
from ops.harness.processes import CONTROLLER, PROXY, Process, processes
from workers.bundle import load_bundle
from workers.http_clients import client

_LOOK_SECONDS = 5.0


class Site:
    """A running service, with access to each of its parts."""

    def __init__(self, service: OwnService) -> None:
        self.service = service
        self._client = client(service.url, timeout=_LOOK_SECONDS)
        self.model = load_bundle(service.config.bundle).name
        table = served_table(service.config)
        self.store = Path(service.config.feedback.state_uri)
        self.state_folder = self.store / table.fit_id

    def busiest(self, method: str) -> Process:
        """Return the replica of a method that reports the most outstanding tokens."""
        routing = self._routing() or {"loads": []}
        tokens = {load["replica"]: load["outstanding_tokens"] for load in routing["loads"]}
        hosts = {load["replica"] for load in routing["loads"] if method in load["methods"]}
        replicas = [process for process in processes() if process.replica in hosts]
        return max(replicas, key=lambda process: tokens[process.replica])

    def kill(self, doomed: Iterable[Process]) -> list[int]:
        """SIGKILL each of them; their pids."""
        pids = [process.pid for process in doomed]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def poison(self, method: str) -> None:
        """The method's targets compute NaN from now on."""
        handle = self.service.handle(method)
        handle.broadcast("poison").results(timeout_s=CALL_SECONDS)

    def break_drafters(self, broken: bool) -> None:
        """Every method's drafters fail from now on, or no longer."""
        config = self.service.config
        hosts = (config.shared,) if config.layout == "shared" else config.methods
        for host in hosts:
            handle = self.service.handle(host.name)
            handle.broadcast("break_drafters", broken).results(timeout_s=CALL_SECONDS)

    def stored(self) -> frozenset[str]:
        """Ids of the answers that the stored state has learned from."""
        state = StateStore(str(self.state_folder)).read() or {}
        return frozenset(state.get("seen", ()))

    def waiting(self) -> int | None:
        """Return the observations that an ingress has not had acknowledged; None if it is away."""
        routing = self._routing()
        return None if routing is None else int(routing["feedback"]["observations_waiting"])

    def whole(self, without: Iterable[int]) -> bool:
        """Whether every part is there and says that it is well, none of them with one of these
        pids."""
        living = processes()
        if not {p.pid for p in living}.isdisjoint(without):
            return False
        expected = self._expected()
        if Counter(p.role for p in living) != expected:
            return False
        return self._serve_is_whole(expected) and self._answers(living)

    def _expected(self) -> Counter[str]:
        config = self.service.config
        hosts = (config.shared,) if config.layout == "shared" else config.methods
        parts = dict.fromkeys((CONTROLLER, PROXY, FEEDBACK, LOADS), 1)
        parts[INGRESS] = config.http.ingress_replicas
        return Counter(parts | {host.name: host.max_replicas for host in hosts})

    def _serve_is_whole(self, expected: Counter[str]) -> bool:
        """What Ray Serve's controller says; where it is away it is not whole."""
        try:
            status = serve.status()
        except (RayServeException, ray.exceptions.RayError, TimeoutError):
            return False
        application = status.applications.get(APPLICATION)
        if application is None or any(s != "HEALTHY" for s in status.proxies.values()):
            return False
        return all(
            deployment.replica_states == {"RUNNING": expected[name]}
            for name, deployment in application.deployments.items()
        )

    def _answers(self, living: Iterable[Process]) -> bool:
        """Whether /health has every method, and every replica's report is good and an ingress has
        it."""
        health, routing = self._get("/health"), self._routing()
        if health is None or routing is None or routing["feedback"]["problem"] is not None:
            return False
        methods = {method.name for method in self.service.config.methods}
        well = {load["replica"] for load in routing["loads"] if load["healthy"]}
        replicas = {p.replica for p in living if p.replica and p.role != INGRESS}
        return set(health["methods"]) == methods and well == replicas

    def _routing(self) -> dict[str, Any] | None:
        return self._get("/v1/routing")

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            answer = self._client.get(path)
            body: dict[str, Any] = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return None
        return body
