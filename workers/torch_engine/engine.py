"""The Engine protocol over our own decode loop."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from schemas import DecodeChunk, DecodeRequest, EngineConfig, Grammar, LoadReport, MethodSpec
from workers.bundle import Bundle, BundleError
from workers.drafting.learned_state import key_of
from workers.drafting.lookup.datastore import open_datastore
from workers.end_tokens import end_tokens
from workers.engine import EngineRefusedError, check_method, check_tokens
from workers.engine_load import load_report
from workers.stream import Stream
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.drafter_guard import DrafterGuard
from workers.torch_engine.drafters.adaptive import Adaptive
from workers.torch_engine.logit_processor import make_logit_processor
from workers.torch_engine.method import Method
from workers.torch_engine.models.model import chosen_dtype, load_target
from workers.torch_engine.scheduler import Limits, Scheduler
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target import Target

if TYPE_CHECKING:
    from workers.grammar.compiler import GrammarCompiler
    from workers.torch_engine.constraint import Constraint

log = logging.getLogger(__name__)

PREFILL_CHUNK = 256
"""Prompt tokens read between two steps of running requests."""
CLOSE_SECONDS = 30.0
"""How long `close` waits for the step in progress."""


class TorchEngine:
    """Decode any number of methods with one target, in a stepper thread that owns the models."""

    def __init__(
        self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, replica: str
    ) -> None:
        self._config, self._replica = config, replica
        self._tokenizer = bundle.backend_tokenizer()
        self._eos = end_tokens(bundle)
        loaded: Future[Models] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(methods, bundle, loaded), name="stepper", daemon=True
        )
        self._thread.start()
        models = loaded.result()
        self._target, self._capacity = models.target, models.capacity
        self._methods, self._scheduler = models.methods, models.scheduler
        context, self._bundle, self._dtype = models.context, bundle, models.dtype
        self._guard = context.guard
        self.threads = models.threads
        """Torch threads that decode; one fewer than configured if that is faster here."""
        self._heads = [one.versions for one in context.drafters if one.versions]
        self._looking_up = [one for one in context.drafters if isinstance(one, Adaptive)]

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        return [method.spec for method in self._methods.values()]

    async def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream a response; see workers.engine.Engine."""
        self._check(request)
        grammar = request.sampling.grammar
        constraint = None if grammar is None else await self._constraint(grammar)
        sequence = self._sequence(request, constraint)
        self._scheduler.submit(sequence)
        async with aclosing(sequence.stream.chunks(self._scheduler.wake)) as chunks:
            async for chunk in chunks:
                yield chunk

    def load(self) -> LoadReport:
        """Return the present load. Safe in any thread; never waits for a step."""
        healthy = self._scheduler.healthy and self._thread.is_alive()
        healthy &= not self._scheduler.stalled(self._config.stall_seconds)
        report = load_report(self._replica, self._methods, self._scheduler, healthy=healthy)
        prefixes = self._scheduler.prefixes.hashes() if self._config.prefix_cache else None
        failures = dict(self._guard.failures.counts)
        return report.model_copy(update={"drafter_failures": failures, "prefixes": prefixes})

    @property
    def exchangeable(self) -> frozenset[str]:
        """See workers.engine.HeadExchanger."""
        return frozenset(versions.part for versions in self._heads)

    def exchange(self, part: str, version: int, folder: Path | None, share: float) -> None:
        """See workers.engine.HeadExchanger."""
        if part not in self.exchangeable:
            raise BundleError(f"{part}: no method that is served here drafts with this part")
        with torch.inference_mode():
            for versions in self._heads:
                if versions.part == part:
                    versions.exchange(version, folder, share)

    def remember(self, folder: Path) -> None:
        """See workers.engine.Learning."""
        kind = self._target.model.device.type
        device = "cpu" if kind == "cpu" else torch.cuda.get_device_name()
        key = key_of(self._bundle, self._dtype, self._config.threads, device)
        for one in self._looking_up:
            one.controller.remember(folder, key)

    def close(self) -> None:
        """Stop the stepper thread; running requests end as cancelled. May be called twice."""
        self._scheduler.stop()
        self._thread.join(CLOSE_SECONDS)
        for one in self._looking_up:
            if one.controller.state is not None:
                one.controller.state.store(now=True)

    def _run(self, methods: Sequence[MethodSpec], bundle: Bundle, loaded: Future[Models]) -> None:
        """Load the models and run the stepper thread.

        Only this thread computes: a second one gets OpenMP threads of its own, and with more
        threads than cores all sleep between operators, which makes a step several times longer.
        """
        torch.set_num_threads(self._config.threads)
        try:
            models = load_models(methods, bundle, self._config)
        except BaseException as error:
            loaded.set_exception(error)
            return
        loaded.set_result(models)
        self._step(models.scheduler)

    def _step(self, scheduler: Scheduler) -> None:
        with torch.inference_mode():
            scheduler.run()

    def _sequence(
        self, request: DecodeRequest, constraint: Constraint | None = None
    ) -> DecodeSequence:
        """Return the request as a sequence for the scheduler."""
        return DecodeSequence(
            request,
            Stream(request.request_id),
            tokenizer=self._tokenizer,
            eos=self._eos,
            processor=make_logit_processor(request, constraint, self._eos),
        )

    @cached_property
    def _grammars(self) -> GrammarCompiler:
        # llguidance is imported with the first grammar only
        from workers.grammar.compiler import GrammarCompiler

        backend = self._tokenizer.to_str()
        return GrammarCompiler(backend, self._target.model.vocab, self._eos)

    async def _constraint(self, grammar: Grammar) -> Constraint:
        """Return a grammar's constraint. Raises EngineRefusedError for a malformed grammar."""
        from workers.torch_engine.constraint import Constraint

        matcher = await self._grammars.begin(grammar)
        return Constraint(matcher, self._target.model.vocab, self._eos, self._grammars.raw)

    def _check(self, request: DecodeRequest) -> None:
        check_method(request, self._methods)
        vocab = self._target.model.vocab
        check_tokens(request, self._capacity, vocab)
        biased = max(request.sampling.logit_bias, default=0)
        if biased >= vocab:
            raise EngineRefusedError(
                f"logit_bias: {biased} is outside the vocabulary of {vocab} tokens: use the "
                "bundle's tokenizer"
            )


@dataclass(frozen=True)
class Models:
    """The models behind a scheduler. capacity: tokens of a sequence. joint: prompt tokens that are
    read in one forward. dtype, threads: those that decode, never "auto"."""

    target: Target
    methods: dict[str, Method]
    context: BuildContext
    scheduler: Scheduler
    capacity: int
    joint: int
    dtype: str
    threads: int


def load_models(
    methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, chunk: int | None = None
) -> Models:
    """Load everything that decodes, in the thread that will own it. Raises what loading raises.

    chunk: prompt tokens that are read between two steps  [default: PREFILL_CHUNK].
    """
    chunk = chunk or PREFILL_CHUNK
    device = _device(config.device)
    named = chosen_dtype(config.dtype, bundle, device)
    dtype = torch.bfloat16 if named == "bfloat16" else torch.float32
    model = load_target(bundle.part("target"), named, device)
    capacity = min(config.max_context, config.kv_slots)
    if model.max_positions is not None:
        capacity = min(capacity, model.max_positions)
    if config.kv_slots < config.max_context:
        log.warning(
            "engine.max_context is %d, but engine.kv_slots hold %d tokens: contexts of %d; more "
            "kv_slots make room",
            *(config.max_context, config.kv_slots, capacity),
        )
    rows = min(config.max_batch, config.kv_slots // capacity)
    if rows < config.max_batch:
        log.warning(
            "engine.max_batch is %d, but engine.kv_slots (%d) hold %d sequences of %d tokens: "
            "batches of %d; more kv_slots, or a smaller max_context, make room",
            *(config.max_batch, config.kv_slots, rows, capacity, rows),
        )
    pool_rows = config.kv_slots // capacity if config.prefix_cache else rows
    target = Target(model, model.make_pool(pool_rows, capacity))
    context = BuildContext(
        *(bundle, device, dtype, pool_rows, capacity, model.vocab, target.model),
        *(chunk, DrafterGuard(model.vocab), target.costs),
        datastore=open_datastore(config.datastore, bundle),
    )
    built = {spec.name: Method(spec, context) for spec in methods}
    with torch.inference_mode():
        if device.type == "cpu" and config.threads > 1:
            target.choose_threads(config.threads)
        if target.costs.wanted:
            target.measure_costs()
        joint = target.joint_rows(min(chunk, capacity))
    scheduler = Scheduler(
        target,
        built,
        context.drafters,
        context.guard,
        Limits(
            rows=rows,
            capacity=capacity,
            max_waiting=config.max_waiting,
            chunk=chunk,
            joint=joint,
            prefix_cache=config.prefix_cache,
        ),
        context.past,
    )
    return Models(
        *(target, built, context, scheduler, capacity, joint, named), torch.get_num_threads()
    )


def _device(name: str) -> torch.device:
    """Return the device that a configuration names. Raises ValueError where CUDA is absent."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("engine.device: no CUDA device is visible here; use 'cpu' or 'auto'")
    return torch.device(name)
