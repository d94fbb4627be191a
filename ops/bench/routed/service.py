"""The service that `bench routed` measures: started with the methods it compares, or joined."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ops.bench.routed.arm_keys import kept_apart, new_keys
from ops.bench.routed.figures import ROUTED
from ops.harness.boundary import InputError
from ops.harness.chat_client import model_names
from ops.harness.engines import POLLING_SECONDS
from ops.harness.running_service import started_service
from ops.harness.settings import Setup
from schemas import AppConfig, MethodDeployment
from workers.http_clients import async_client
from workers.methods import METHODS


@dataclass(frozen=True)
class Site:
    """What is measured.

    service: yields the address of a service for one repeat. methods: the methods to pin. rest:
    seconds after an answer until no engine uses the machine. settings: facts about the service.
    keys: the API key of each arm, if needed.
    """

    service: Callable[[], AbstractContextManager[str]]
    methods: tuple[str, ...]
    rest: float
    settings: dict[str, Any]
    keys: Mapping[str, str] = field(default_factory=dict)


def started(settings: AppConfig, setup: Setup) -> Site:
    """Return a service of the set-up's methods alone, a new one for every repeat."""
    cold = cold_service(settings, setup)
    known = {
        "started_by": "this command",
        "bundle": str(cold.bundle),
        "layout": cold.layout,
        "engine": cold.engine.model_dump(mode="json"),
        "dtype": cold.engine.dtype,
        "threads": cold.engine.threads,
        "exploration": cold.router.exploration,
        "methods": {spec.name: spec.settings_hash() for spec in setup.methods},
    }
    rest = _rest_seconds(settings, setup.names)
    # vLLM's suffix drafter uses all clients' answers and cannot separate them
    apart = all(spec.engine == "torch" for spec in setup.methods)
    keys = new_keys((ROUTED, *setup.names)) if apart else {}

    @contextmanager
    def service() -> Iterator[str]:
        known_keys = kept_apart(cold, keys) if keys else nullcontext(cold)
        with known_keys as config, started_service(config) as url:
            yield url

    return Site(service, tuple(setup.names), rest, {**known, "arms_apart": apart}, keys)


async def joined(url: str, settings: AppConfig, wanted: Sequence[str] | None) -> Site:
    """Return the service at a URL with the named methods, or all of its own.

    Raises InputError if no service answers or a method is not served.
    """
    async with async_client(url, timeout=None) as client:
        model, *others = await model_names(client)
    pinning = f"{model}:"
    served = [name.removeprefix(pinning) for name in others if name.startswith(pinning)]
    unknown = [name for name in wanted or () if name not in served]
    if unknown:
        raise InputError(
            f"--methods: {', '.join(unknown)} is not served; available methods: {', '.join(served)}"
        )
    if not served:
        raise InputError(f"--url: the service at {url} has no methods to pin")
    methods = tuple(wanted or served)
    rest = _rest_seconds(settings, methods)
    return Site(lambda: nullcontext(url), methods, rest, {"started_by": "others"})


def cold_service(settings: AppConfig, setup: Setup) -> AppConfig:
    """The configuration with the set-up's methods alone, each with a replica from the start, for
    prompts that come once per arm and are new to a user's service: engines keep no prefix, and
    repetition is not taken for drift."""
    known = {method.name: method for method in settings.methods}
    default = settings.router.default_method
    router = {"default_method": default if default in setup.names else None, "refit": False}
    return settings.model_copy(
        update={
            "bundle": setup.bundle,
            "methods": tuple(
                _running(known.get(n) or MethodDeployment(name=n)) for n in setup.names
            ),
            "engine": setup.engine.model_copy(update={"prefix_cache": False}),
            "router": settings.router.model_copy(update=router),
        }
    )


def _running(method: MethodDeployment) -> MethodDeployment:
    return method.model_copy(update={"min_replicas": max(1, method.min_replicas)})


def _rest_seconds(settings: AppConfig, methods: Sequence[str]) -> float:
    """vLLM's processes poll their queues for a while after an answer."""
    own = {method.name: method.spec for method in settings.methods}
    specs = [own.get(name) or METHODS.get(name) for name in methods]
    polls = any(spec is not None and spec.engine == "vllm" for spec in specs)
    return POLLING_SECONDS if polls else 0.0
