"""A decoding method as a Ray Serve replica; in the shared layout, several methods."""

import asyncio
import gc
import logging
import math
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import ray
from ray import serve
from ray.serve.schema import ReplicaRank

from deployments import traces
from deployments.actors import (
    FEEDBACK,
    ActorAwayError,
    ActorLine,
    forever,
    log_with_serve,
    running_actors,
)
from deployments.artifacts import method_specs, served_table
from deployments.configuration import validated
from deployments.loads import (
    IDLE_SECONDS,
    MOST_INTERVALS,
    REPORT_SECONDS,
    differs,
    load_board,
)
from deployments.metrics import ReplicaMetrics
from deployments.replica.heads import FOLLOW_SECONDS, HeadFollower, HeadTally
from deployments.replica.placement import (
    has_its_cores,
    pinned_cores,
    placed_engine,
    resources_of,
)
from deployments.replica.scaling import REQUESTS, WORK
from deployments.replica.warm_up import PROSE, TEXT, TOKENS, clients_load, measure, warm_up
from deployments.rollout import read_by_method, version_of
from router.scaling import UsualAnswer, work_seconds
from schemas import AppConfig, DecodeChunk, DecodeRequest, DecodeStats, LoadReport
from workers.bundle import load_bundle, user_cache
from workers.engine import EngineBusyError, EngineRefusedError, HeadExchanger, Learning
from workers.loader import load_engine
from workers.portfolio import served_bundle
from workers.stream import joined
from workers.weight_files import target_hash

logger = logging.getLogger(__name__)

# A message costs about half a millisecond of CPU in the replica, in the ingress and in the proxy
# each. A stream sends its first chunk at once; all of a replica's together then send so many
# messages a second, but none of them waits longer than people notice.
MESSAGES_PER_SECOND = 20.0
LONGEST_INTERVAL_SECONDS = 0.25
_TIMEOUT_SECONDS = 30.0
_TELL_AGAIN_SECONDS = 5.0


class MethodReplica:
    """Serve one engine and its methods; report its load a few times a second, or once a second
    while it stays the same."""

    _reported: tuple[LoadReport, float] | None = None
    """The last report that the board has, and when it was sent."""

    def __init__(self, config: AppConfig, methods: tuple[str, ...]) -> None:
        log_with_serve()
        context = serve.get_replica_context()
        self._config = config
        self._replica = context.replica_id.unique_id
        specs = method_specs(config, methods)
        resources = resources_of(methods[0], config)
        # Replicas that start side by side on the same cores slow each other down by chance.
        self._comparable = len(methods) > 1 or has_its_cores(resources, config.engine)
        self._cores = pinned_cores(config.engine, specs)
        self._streams = 0
        self._measured = set[str]()
        self._leaves = False
        self._warm = False
        self._settings = placed_engine(resources, specs, config.engine, context.rank.rank)
        self._engine = load_engine(specs, served_bundle(config), self._settings, self._replica)
        self._application = context.app_name
        self._metrics = ReplicaMetrics(self._replica)
        self._table = served_table(config)
        self._usual = UsualAnswer(self._table)
        # What was loaded stays: a full collection that visits it holds up a step for 0.1 s or more.
        gc.collect()
        gc.freeze()
        self._background = {asyncio.get_running_loop().create_task(self._report_forever())}
        self._heads = HeadTally()
        self._refused_heads: Mapping[int, str] = {}
        if config.feedback.drafter_training and isinstance(self._engine, HeadExchanger):
            bundle = load_bundle(config.bundle)
            follower = HeadFollower(self._engine, config.feedback, bundle.name, target_hash(bundle))
            self._refused_heads = follower.refused
            follow = partial(asyncio.to_thread, follower.follow)
            following = forever(follow, lambda _: FOLLOW_SECONDS)
            self._background.add(asyncio.create_task(following))

    async def generate(
        self, request: DecodeRequest, whole: bool
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Stream the response as `DecodeChunk` dumps; with `whole` as a single one.

        A refusal is a message `{"refused": why}` or `{"busy": why}` and not an exception, which
        Ray Serve would log with a traceback each time. Closing the stream cancels the work.
        """
        most = self._config.engine.max_batch

        def interval() -> float:
            return math.inf if whole else stream_interval(min(self._streams, most))

        self._streams += not whole
        try:
            async with aclosing(merged(self._engine.generate(request), interval)) as chunks:
                async for chunk in chunks:
                    if chunk.stats is not None:
                        self._usual.saw(chunk.stats.output_tokens)
                        if self._config.feedback.drafter_training:
                            self._heads.saw(chunk.stats)
                        traces.decoded(chunk.stats)
                    yield chunk.model_dump(exclude_defaults=True)
        except EngineRefusedError as error:
            yield {"refused": str(error)}
        except EngineBusyError as error:
            yield {"busy": str(error)}
        finally:
            self._streams -= not whole

    async def reconfigure(self, _user_config: object, rank: ReplicaRank) -> None:
        """Take the server of another rank; Ray Serve calls this.

        A replica that replaces one which still ends its responses has a rank of its own until then,
        and would leave a server without requests. Answers that have begun end where they are.
        """
        if self._config.engine.openai is None:
            return
        specs = self._engine.methods
        resources = resources_of(specs[0].name, self._config)
        settings = placed_engine(resources, specs, self._config.engine, rank.rank)
        if settings != self._settings:
            before, bundle = self._engine, served_bundle(self._config)
            engine = await asyncio.to_thread(load_engine, specs, bundle, settings, self._replica)
            self._engine, self._settings = engine, settings
            before.close()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what the autoscaling policy follows; Ray Serve calls this."""
        load = self._load()
        batch, usual = self._config.engine.max_batch, self._usual.tokens
        return {
            WORK: work_seconds(self._table, load, batch, usual),
            REQUESTS: float(load.running + load.waiting),
        }

    def check_health(self) -> None:
        """Raise if the engine has stopped; Ray Serve then replaces the replica.

        A server that has stopped needs no other replica. Until it is back, the load reports keep
        requests away.
        """
        load = self._engine.load()
        if self._config.engine.openai is None and not load.healthy:
            raise RuntimeError("the engine has stopped")
        if self._leaves and not load.running + load.waiting:
            raise RuntimeError("this replica makes room for its replacement")

    async def make_room(self, args: Mapping[str, Any]) -> None:
        """End once no requests are left, if `args` replace this replica and their own waits for its
        resources."""
        read = read_by_method(validated(args), [spec.name for spec in self._engine.methods])
        self._leaves = version_of(read) != version_of(self._config)

    async def placement(self) -> dict[str, Any]:
        """Return where this replica runs: its name, process, accelerators and thread settings."""
        return {
            "replica": self._replica,
            "pid": os.getpid(),
            "methods": [spec.name for spec in self._engine.methods],
            "gpu_ids": ray.get_gpu_ids(),
            "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
            "cores": sorted(os.sched_getaffinity(0)),
        }

    async def __del__(self) -> None:
        for task in self._background:
            task.cancel()
        self._engine.close()

    async def _warm_up(self) -> None:
        """Warm up before the first report: until then a method without other replicas gets no
        requests."""
        if isinstance(self._engine, Learning):
            await asyncio.to_thread(self._engine.remember, user_cache("adaptive"))
        await warm_up(self._engine, self._encoded(TEXT))
        if self._comparable:
            self._background.add(asyncio.create_task(self._measure()))

    async def _measure(self) -> None:
        """Tell the feedback actor how long this replica's steps are, until it has learned it."""
        text, prose = self._encoded(TEXT), self._encoded(PROSE)
        batch = self._config.engine.max_batch
        answers = await measure(self._engine, text, prose, batch, self._measured)
        while not await self._told(answers):
            await asyncio.sleep(_TELL_AGAIN_SECONDS)

    def _encoded(self, text: str) -> list[int]:
        room = max(1, self._config.engine.max_context - TOKENS)
        return load_bundle(self._config.bundle).backend_tokenizer().encode(text).ids[:room]

    async def _told(self, answers: Sequence[DecodeStats]) -> bool:
        """Return whether a feedback actor has learned from the warm-up's answers and stored
        that."""
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                actors = await asyncio.to_thread(running_actors, FEEDBACK, self._application)
                told = [actor.warmed_up.remote(self._replica, answers) for actor in actors]
                return True in await asyncio.gather(*told, return_exceptions=True)
        except Exception as error:  # Ray raises many kinds, and the next call may do better
            logger.warning("step times not delivered: %r", error)
            return False

    def _line(self, connect: Callable[[str, AppConfig], Any]) -> ActorLine[Any]:
        return ActorLine(partial(asyncio.to_thread, connect, self._application, self._config))

    def _load(self) -> LoadReport:
        seen = {"answers": self._heads.answers, "heads": self._heads.counts}
        seen |= {"refused_heads": dict(self._refused_heads)}
        seen |= {"healthy": False} if self._leaves else {}
        return clients_load(self._engine.load().model_copy(update=seen), self._measured)

    async def _report_forever(self) -> None:
        board = self._line(load_board)

        def pause(spent: float) -> float:
            return max(0.0, board.pause(REPORT_SECONDS, MOST_INTERVALS * REPORT_SECONDS) - spent)

        await forever(partial(self._report_once, board), pause)

    async def _report_once(self, board: ActorLine[Any]) -> None:
        """Report the load, once the replica is warm.

        A replica without reports seems idle, and would get the requests of the others. So one whose
        server has not started reports too.
        """
        if not self._warm and (self._config.engine.openai is None or self._engine.load().healthy):
            self._warm = True  # also if it fails: requests then show what the engine can do
            await self._warm_up()
        load, now = self._load(), asyncio.get_running_loop().time()
        if self._reported is not None:
            last, sent = self._reported
            if now < sent + IDLE_SECONDS and not differs(load, last):
                return
        self._metrics.reported(load)
        try:
            await board.ask(lambda actor: actor.report.remote(load), _TIMEOUT_SECONDS)
            self._reported = load, now
        except ActorAwayError as error:
            logger.warning("load report not delivered: %s", error)


async def merged(
    chunks: AsyncIterator[DecodeChunk], interval: Callable[[], float]
) -> AsyncGenerator[DecodeChunk, None]:
    """Yield the same response in fewer pieces, at most one every `interval` seconds.

    The first chunk goes at once (unless `interval` is infinite), and so does the last. Closes
    `chunks` when it is closed.
    """
    held: DecodeChunk | None = None
    sent = float("-inf")
    try:
        async for chunk in chunks:
            held = chunk if held is None else joined(held, chunk)
            seconds = interval()
            due = seconds < math.inf and time.monotonic() >= sent + seconds
            if due or chunk.finish_reason is not None:
                yield held
                held, sent = None, time.monotonic()
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


def stream_interval(streams: int) -> float:
    """Return the seconds between two messages of each of a replica's streams."""
    return min(LONGEST_INTERVAL_SECONDS, streams / MESSAGES_PER_SECOND)
