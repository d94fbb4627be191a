"""The HTTP ingress as a Ray Serve deployment."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from deployments.actors import forever, log_with_serve
from deployments.api.embeddings import Embeddings
from deployments.api.prompt_reader import PromptReader
from deployments.api.routes import HttpApi
from deployments.artifacts import copying, embedding, portfolios, served_encoder, served_table
from deployments.configuration import (
    ConfigError,
    changed,
    check_clusters,
    live_fields,
    validated,
)
from deployments.guard.middleware import guarded
from deployments.guard.slots import QUEUED_REQUESTS, Slots
from deployments.head_training.actor import SampleLine, head_training_actor
from deployments.learning.feedback import feedback_actor
from deployments.learning.link import FeedbackLink
from deployments.loads import LoadsLine, load_board
from deployments.metrics import Metrics
from deployments.replica.placement import resources_of
from deployments.request.answer import Answerer, Served
from deployments.request.calls import MethodStream
from deployments.request.in_flight import publish
from deployments.request.refusals import Refusals
from deployments.request.starting import Starting
from deployments.rollout import (
    LOOK_SECONDS,
    Capacity,
    Declared,
    look,
    read_by_ingress,
    version_of,
)
from deployments.transport import OVER_GRPC, bypass_proxies
from schemas import AppConfig, DecodeChunk, DecodeRequest
from workers.bundle import import_without_torch, load_bundle
from workers.engine import EngineBusyError, EngineRefusedError

logger = logging.getLogger(__name__)


@serve.ingress()
class Ingress:
    """Answer HTTP; `handles` maps each method to the deployment that hosts it."""

    def __init__(
        self,
        config: AppConfig,
        handles: Mapping[str, DeploymentHandle[Any]],
        declared: bool = False,
    ) -> None:
        """declared: whether a Serve configuration declares the application, and may change it."""
        log_with_serve()
        bypass_proxies()
        import_without_torch()
        context = serve.get_replica_context()
        application = context.app_name
        self._look = (
            partial(look, application, context.deployment, context.replica_tag, Capacity())
            if declared
            else None
        )

        def connect(find: Callable[[str, AppConfig], Any]) -> Callable[[], Awaitable[Any]]:
            return partial(asyncio.to_thread, lambda: Remote(find(application, config)))

        self._config = config
        self._args: Mapping[str, Any] = {}
        self._user_config: Mapping[str, Any] = {}
        self._metrics = metrics = Metrics()
        encoder = served_encoder(config)
        self._loads = LoadsLine(connect(load_board))
        self._link = FeedbackLink(
            served_table(config), connect(feedback_actor), self._loads, metrics
        )
        training = config.feedback.drafter_training
        self._samples = SampleLine(connect(head_training_actor)) if training else None
        self._answerer = answerer = Answerer(
            Served(
                {method: method_stream(handle) for method, handle in handles.items()},
                Refusals(portfolios(config), elsewhere=config.engine.openai is not None),
                Starting(
                    {
                        method: handle.placement.remote
                        for method, handle in handles.items()
                        if resources_of(method, config).min_replicas == 0
                    }
                ),
                copying(config),
            ),
            self._link,
            config.router,
            embedding(encoder),
            metrics,
            self._samples.add if self._samples else None,
        )
        publish(application, answerer.in_flight)
        reader = PromptReader(
            load_bundle(config.bundle), tuple(handles), config.engine, config.http
        )
        embeddings = Embeddings(encoder)
        self._http = HttpApi(reader, answerer, embeddings, self._link, metrics, config)
        self._guarded = partial(guarded, config=config.http.guard, metrics=metrics)
        # A large body makes many objects. A collection would visit everything loaded here too and
        # stop all responses for most of a second.
        gc.freeze()

    async def reconfigure(self, user_config: Mapping[str, Any]) -> None:
        """Take other settings without losing a request; see `configuration.changed`.

        Wrong settings are refused and the previous ones stay: raising would make Ray replace the
        replica.
        """
        self._user_config = user_config
        try:
            config = changed(self._config, user_config)
            check_clusters(config, len(self._link.table.assignment))
        except ConfigError as error:
            logger.error("user_config is refused, the previous settings stay: %s", error)
            self._http.refused_settings = str(error)
            self._metrics.settings_refused.set(1)
            return
        self._metrics.settings_refused.set(0)
        self._http.config, self._http.refused_settings = config, None
        self._answerer.config = config.router
        logger.info("settings in force: %s", live_fields(config))

    async def _follow(self, look: Callable[[], Declared | None]) -> None:
        """Take over changed `args` that need no restart, and have a replica make room for its
        replacement."""
        declared = await asyncio.to_thread(look)
        if declared is None:
            return
        if declared.args != self._args:
            self._args, config = declared.args, validated(declared.args)
            same = version_of(read_by_ingress(config)) == version_of(read_by_ingress(self._config))
            if same:  # otherwise this ingress is about to be replaced
                self._config = config
                await self.reconfigure(self._user_config)
        if declared.crowded is not None:
            crowded = serve.get_deployment_handle(declared.crowded)
            await asyncio.wait_for(crowded.make_room.remote(declared.args), LOOK_SECONDS)

    def __serve_build_asgi_app__(self) -> FastAPI:
        app, http = self._http.app(lambda _: self._exchanging()), self._config.http
        app.add_middleware(
            Slots,
            ongoing=http.ingress_max_ongoing_requests,
            queued=QUEUED_REQUESTS,
        )
        return self._guarded(app)

    @asynccontextmanager
    async def _exchanging(self) -> AsyncIterator[None]:
        """Exchange in the background during the block; at its end send what still waits."""
        loops = [self._link.exchange_forever(), self._loads.fetch_forever()]
        if self._samples is not None:
            loops.append(self._samples.send_forever())
        if self._look is not None:
            loops.append(forever(partial(self._follow, self._look), lambda _: LOOK_SECONDS))
        going_on = [asyncio.create_task(loop) for loop in loops]
        try:
            yield
        finally:
            for task in going_on:
                task.cancel()
            await self._link.exchange(everything=True)
            if self._samples is not None:
                await self._samples.send()


class Remote:
    """Call a Ray actor's methods as if it were in this process."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name).remote


def method_stream(handle: DeploymentHandle[Any]) -> MethodStream:
    """Return a deployment's `generate` as the Answerer calls it; closing the stream cancels the
    call."""
    streaming = handle.options(method_name="generate", stream=True, **OVER_GRPC)

    async def stream(request: DecodeRequest, whole: bool) -> AsyncGenerator[DecodeChunk, None]:
        response: Any = streaming.remote(request, whole)
        finished = False
        try:
            async for message in response:
                if "busy" in message:
                    raise EngineBusyError(message["busy"])
                if "refused" in message:
                    raise EngineRefusedError(message["refused"])
                yield DecodeChunk.model_validate(message)
            finished = True
        except BackPressureError as error:
            raise EngineBusyError(str(error)) from error
        finally:
            if not finished:
                response.cancel()

    return stream
