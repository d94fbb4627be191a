"""Named Ray actors of an application, and connections to them from other processes.

They are named actors rather than Serve deployments, since a deployment is not a singleton during a
rollout. They are detached, since an actor owned by one ingress would die with that ingress. They
end themselves after a while without calls, so that a deleted application leaves nothing behind.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import ray

logger = logging.getLogger(__name__)

FEEDBACK, LOADS, DRAFTERS = "feedback", "loads", "drafters"
"""Roles: what learns to route, what relays the replicas' load reports, what trains drafters."""

PACKAGES = ("deployments", "router", "workers", "specadapt")
"""The loggers that all of ours descend from."""
SERVE = "ray.serve"

LEASE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0
_NAMESPACE = "specadapt"

Remote = TypeVar("Remote")
Result = TypeVar("Result")


class ActorAwayError(RuntimeError):
    """The actor cannot be reached, or its call failed; the message says why."""


class ActorLine(Generic[Remote]):
    """Call an actor that may be away; `connect` finds or creates it."""

    def __init__(self, connect: Callable[[], Awaitable[Remote]]) -> None:
        self._connect = connect
        self._remote: Remote | None = None
        self.failures = 0
        """In a row."""

    async def ask(
        self, call: Callable[[Remote], Awaitable[Result]], seconds: float = _TIMEOUT_SECONDS
    ) -> Result:
        """Return what `call` gives within `seconds`. Raises ActorAwayError, whose cause is the
        call's own error where the actor answered."""
        try:
            async with asyncio.timeout(seconds):
                if self._remote is None:
                    self._remote = await self._connect()
                result = await call(self._remote)
        except Exception as error:  # whatever it is, the caller goes on without the actor
            self._remote = None
            self.failures += 1
            raise _away(error, seconds) from error
        self.failures = 0
        return result

    def pause(self, seconds: float, longest: float = LONGEST_PAUSE_SECONDS) -> float:
        """Return the seconds to wait before the next call, if calls follow each other every
        `seconds`.

        Pauses are jittered, so that processes do not call in step. They double with each failure up
        to `longest` seconds: an actor that fails to start would otherwise be started several
        times a second, and each start takes seconds of CPU.
        """
        pause = min(seconds * 2.0 ** min(self.failures, 32), max(seconds, longest))
        return pause * random.uniform(0.8, 1.2)


async def forever(once: Callable[[], Awaitable[object]], pause: Callable[[float], float]) -> None:
    """Call `once` forever, whatever it raises. The first error in a row is logged.

    pause: takes the seconds that a call took, returns those until the next one.
    """
    failing = False
    while True:
        started = time.monotonic()
        try:
            await once()
            failing = False
        except Exception:  # nobody waits for the loop, so its end would go unnoticed
            if not failing:
                logger.exception("a background call failed, and is repeated")
            failing = True
        await asyncio.sleep(pause(time.monotonic() - started))


def _away(error: Exception, seconds: float) -> ActorAwayError:
    if isinstance(error, TimeoutError):
        return ActorAwayError(f"no answer within {seconds:.0f} s")
    cause = getattr(error, "cause", None) or error  # an exception of the call itself, in Ray's wrap
    # Ray's own messages begin with what happened remotely and end with the cause.
    return ActorAwayError(str(cause).strip().rpartition("\n")[2] or type(cause).__name__)


class _ToServe(logging.Handler):
    """Hand records to Ray Serve's logger, whose handlers change with its configuration."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger(SERVE).handle(record)


def log_with_serve() -> None:
    """Write this process's lines of level INFO and above where Ray Serve writes its own.

    In a replica these are the replica's file among Serve's logs and standard error; in another
    actor standard error alone. Ray gives other loggers no level and no handler.
    """
    for package in PACKAGES:
        ours = logging.getLogger(package)
        ours.setLevel(logging.INFO)
        if not any(isinstance(handler, _ToServe) for handler in ours.handlers):
            ours.addHandler(_ToServe())


def _leased(body: Any) -> type:
    """Return `body` as an actor's class: it logs with Ray Serve, and ends after LEASE_SECONDS
    without a call."""

    def begin(actor: Any, *args: Any) -> None:
        log_with_serve()
        body.__init__(actor, *args)
        handle = ray.get_runtime_context().current_actor

        def watch() -> None:
            # The lease cannot end sooner: each call only makes it longer.
            while (left := LEASE_SECONDS - actor.idle_seconds()) > 0.0:
                time.sleep(left)
            logger.info("no call for %.0f s: ending", LEASE_SECONDS)
            ray.kill(handle, no_restart=True)

        threading.Thread(target=watch, daemon=True).start()

    return type(body.__name__, (body,), {"__init__": begin})


def named_actor(
    body: type, role: str, application: str, version: str, *args: Any, num_gpus: float = 0.0
) -> Any:
    """Return the handle of an application's actor; create `body(*args)` if it does not exist.

    body: has `idle_seconds`, those since the last call. version: of the settings that the actor
    reads and cannot change. Another one gets an actor of its own, and the lease of the old one
    ends. Blocks on Ray's control store. Ray restarts the actor with the same arguments when its
    process dies.
    """
    options = {
        "name": _name(role, application, version),
        "namespace": _NAMESPACE,
        "get_if_exists": True,
        "lifetime": "detached",
        "max_restarts": -1,
        "num_cpus": 0,
        # Nobody reads the events of these calls, which Ray's control store would collect.
        "enable_task_events": False,
        "num_gpus": num_gpus,
        "runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}},
    }
    return ray.remote(_leased(body)).options(**options).remote(*args)


def running_actors(role: str, application: str) -> list[Any]:
    """Return the handles of an application's actors: several while a change of its settings is
    rolled out, and until the lease of the old one ends."""
    named = ray.util.list_named_actors(all_namespaces=True)
    ours = [actor["name"] for actor in named if actor["namespace"] == _NAMESPACE]
    found = []
    for name in ours:
        if name.startswith(_name(role, application, "")):
            with suppress(ValueError):  # it has ended meanwhile
                found.append(ray.get_actor(name, _NAMESPACE))
    return found


def _name(role: str, application: str, version: str) -> str:
    return f"{role}:{application}:{version}"
