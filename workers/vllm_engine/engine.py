"""The Engine protocol over vLLM's AsyncLLM."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from vllm.config import VllmConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError, VLLMServerError
from vllm.inputs import tokens_input
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import StatLoggerBase

from schemas import DecodeChunk, DecodeRequest, EngineConfig, LoadReport, MethodSpec
from workers.bundle import Bundle, BundleError
from workers.drafting.learned_state import key_of
from workers.end_tokens import end_tokens
from workers.engine import EngineRefusedError, RequestFaultError, check_method, check_tokens
from workers.engine_load import EngineLoad, RecentPrefixes, load_report
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.compiler import GrammarCompiler
from workers.methods import refused_draft, refused_field
from workers.portfolio import ADAPTIVE
from workers.vllm_engine.adapter_files import FIELD
from workers.vllm_engine.answer import AnswerError, VllmAnswer, collect_steps, sampling_params
from workers.vllm_engine.arguments import engine_arguments
from workers.vllm_engine.environment import process_environment
from workers.vllm_engine.heads import ExchangedHeads, heads_salt
from workers.vllm_engine.shared import cache_salt, shares

log = logging.getLogger(__name__)

AUTHORS_SECONDS = 0.2
"""How long a response's end waits for its drafters. The engine reports them between two steps,
and may be reading a long prompt."""

CLOSE_SECONDS = 30.0
"""How long `close` waits for vLLM's processes before it kills them."""


class VllmEngine:
    """Serve one of vLLM's methods, or several that share an AsyncLLM.

    vLLM's scheduler and workers are processes of their own; requests come from one event loop.
    """

    def __init__(
        self, methods: Sequence[MethodSpec], bundle: Bundle, config: EngineConfig, replica: str
    ) -> None:
        """Load the engine. Raises ValueError and BundleError for what cannot be loaded,
        RuntimeError where vLLM fails."""
        self._specs = {spec.name: spec for spec in methods}
        self._config, self._replica = config, replica
        self._tokenizer = bundle.backend_tokenizer()
        self._eos = end_tokens(bundle)
        self._bundle, self._load = bundle, EngineLoad()
        arguments = AsyncEngineArgs(**engine_arguments(methods, bundle, config))
        self._prefixes = RecentPrefixes() if config.prefix_cache else None
        collect_steps()
        environment = process_environment(config, shared=shares(methods))
        with patch.dict(os.environ, environment):  # for the processes that vLLM starts
            llm = AsyncLLM.from_engine_args(arguments, stat_loggers=[partial(Recorder, self._load)])
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._heads = ExchangedHeads(methods, bundle, self._load_head, config.max_batch, replica)
        self._adapters = Adapters(config.lora_adapters, llm.add_lora)
        self._vocab = llm.model_config.get_vocab_size()
        self._llm: AsyncLLM | None = llm
        self._failures: dict[str, int] = {}
        self._asking: asyncio.Task[None] | None = None
        self._grammars = GrammarCompiler(self._tokenizer.to_str(), self._vocab, self._eos)

    @property
    def methods(self) -> Sequence[MethodSpec]:
        """The methods this engine was loaded with."""
        return list(self._specs.values())

    async def generate(self, request: DecodeRequest) -> AsyncIterator[DecodeChunk]:
        """Stream a response, a chunk per engine step; see workers.engine.Engine."""
        self._check(request)
        llm = self._llm  # close() may come between two of the next awaits
        if llm is None:
            raise EngineRefusedError("the engine is closed")
        grammar = request.sampling.grammar
        matcher = None if grammar is None else AnswerMatcher(await self._grammars.begin(grammar))
        params = sampling_params(request, self._eos)
        answer = VllmAnswer(request, self._tokenizer, self._eos, self._load)
        self._load.begin(answer)
        try:
            adapter = await self._adapters.request(request.adapter)
            heads = await self._heads.begin(request.method)
            answer.head_versions = partial(self._heads.drafted, heads)
            drafter = cache_salt(self._specs[request.method]) if len(self._specs) > 1 else None
            apart = " ".join(filter(None, (drafter, heads_salt(heads))))
            salt = f"{request.scope}\x1f{apart}" if request.scope or apart else None
            prompt = tokens_input(list(request.known_token_ids), cache_salt=salt)
            outputs = llm.generate(prompt, params, request.request_id, lora_request=adapter)
            async with aclosing(outputs):
                async for output in outputs:
                    chunk = answer.step(output)
                    if answer.finished is not None:
                        break
                    yield chunk
                else:
                    return
            # The engine has ended the response too.
            self._load.end(answer)
            self._look_at_failures()
            if matcher is not None:
                answer.follow(matcher)
            yield await self._with_drafters(chunk, answer)
        except RequestFaultError as error:
            yield answer.failed(str(error), request_fault=True)
        except VLLMClientError as error:
            raise EngineRefusedError(str(error)) from error
        except (VLLMServerError, AnswerError) as error:
            log.error("vLLM gave up on %s: %s", request.request_id, error)
            yield answer.failed(f"vLLM: {error}")
        finally:
            self._load.end(answer)
            if self._prefixes is not None and answer.output_tokens:
                self._prefixes.add(answer.tokens, request.scope, self._load.slots)

    def load(self) -> LoadReport:
        """Return the present load. Safe in any thread; never waits for a step."""
        healthy = self._llm is not None and not self._llm.errored
        healthy &= not self._load.stalled(self._config.stall_seconds)
        report = load_report(self._replica, self._specs, self._load, healthy=healthy)
        prefixes = None if self._prefixes is None else self._prefixes.hashes()
        return report.model_copy(update={"drafter_failures": self._failures, "prefixes": prefixes})

    @property
    def exchangeable(self) -> frozenset[str]:
        """See workers.engine.HeadExchanger. An engine of one method exchanges nothing."""
        return self._heads.parts

    def exchange(self, part: str, version: int, folder: Path | None, share: float) -> None:
        """See workers.engine.HeadExchanger and `ExchangedHeads`: a share of requests is a share of
        turns, and a response in progress goes on with the new head. Raises RuntimeError where the
        engine was not loaded in an event loop."""
        if part not in self.exchangeable:
            raise BundleError(f"{part}: no method that is served here drafts with this part")
        if self._loop is None:
            raise RuntimeError("the engine was loaded outside of an event loop")
        folder = folder or self._bundle.part(part)
        self._heads.refuse_misfit(part, folder)
        exchange = self._heads.exchange(part, version, folder, share)
        asyncio.run_coroutine_threadsafe(exchange, self._loop).result()

    def remember(self, folder: Path) -> None:
        """See workers.engine.Learning; does nothing in an engine without adaptive methods."""
        if self._loop is None or self._llm is None or not shares(self.methods):
            return
        device = "cpu" if current_platform.is_cpu() else current_platform.get_device_name()
        key = key_of(self._bundle, self._config.dtype, self._config.threads, device)
        told = self._llm.collective_rpc("remember", args=(str(folder), key))
        asyncio.run_coroutine_threadsafe(told, self._loop).result()

    def close(self) -> None:
        """End vLLM's processes and running requests, with an error. May be called twice."""
        llm, self._llm = self._llm, None
        if llm is not None:
            llm.shutdown(timeout=CLOSE_SECONDS)

    async def _load_head(self, part: str, folder: Path) -> None:
        if self._llm is None:
            raise EngineRefusedError("the engine is closed")
        await self._llm.collective_rpc("exchange_head", args=(part, str(folder.resolve())))

    def _look_at_failures(self) -> None:
        """Ask the engine's process how often drafters failed, unless a question is pending. It
        answers between two steps; nothing waits for it."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_for_failures())

    async def _ask_for_failures(self) -> None:
        if not shares(self.methods) or self._llm is None:
            return
        try:
            self._failures, *_ = await self._llm.collective_rpc("drafter_failures")
        except Exception as error:  # the engine has ended, as its responses show
            log.debug("the counts of drafter failures are unknown: %r", error)

    async def _with_drafters(self, chunk: DecodeChunk, answer: VllmAnswer) -> DecodeChunk:
        """Return a response's last chunk, with statistics by drafter for the adaptive method.

        Only the engine's process knows the drafters. Without its reply the response ends without
        them.
        """
        if self._specs[answer.request.method].drafter != ADAPTIVE or self._llm is None:
            return chunk
        asked = self._llm.collective_rpc("authors", args=(answer.request.request_id,))
        try:
            authors, *_ = await asyncio.wait_for(asked, AUTHORS_SECONDS)
            return answer.by_drafter(chunk, authors)
        except TimeoutError:  # a long step, such as a long prompt
            return chunk
        except Exception as error:  # the response is complete even if the engine has ended
            log.warning("%s: no statistics by drafter: %r", answer.request.request_id, error)
            return chunk

    def _check(self, request: DecodeRequest) -> None:
        check_method(request, self._specs)
        field = refused_field(self.methods, request.sampling)
        field = field or refused_draft(self._specs[request.method], request.max_draft_tokens)
        if field is not None:
            raise EngineRefusedError(
                f"{field}: vLLM does not take it where it speculates: leave it out, or name a "
                "method whose engine does not speculate"
            )
        check_tokens(request, self._config.max_context, self._vocab)
        given = request.sampling
        counts = given.presence_penalty or given.frequency_penalty
        # To vLLM the beginning of the response is part of the prompt.
        if request.answered_token_ids and (counts or given.grammar is not None):
            raise EngineRefusedError(
                "answered_token_ids: vLLM would neither count them for penalties nor follow a "
                "grammar through them"
            )
        self._load.check_room(self._config)


Load = Callable[[LoRARequest], Awaitable[bool]]
"""Load an adapter into the engine's processes."""


class Adapters:
    """Give each adapter an id, the same on every replica, and load it when it is first asked for.

    vLLM ends the engine if a step meets an adapter that does not load.
    """

    def __init__(self, folders: Mapping[str, Path], load: Load) -> None:
        self._requests = {
            name: LoRARequest(name, number, str(folders[name]))
            for number, name in enumerate(sorted(folders), start=1)
        }
        self._load, self._loaded = load, set[str]()

    async def request(self, name: str | None) -> LoRARequest | None:
        """Return vLLM's request of a loaded adapter; None for none. Raises EngineRefusedError for
        one that is unknown or does not load."""
        if name is None:
            return None
        chosen = self._requests.get(name)
        if chosen is None:
            names = ", ".join(self._requests) or "there are none"
            raise EngineRefusedError(f"adapter: {name!r} is not served; adapters: {names}")
        if name not in self._loaded:
            try:
                await self._load(chosen)
            except VLLMServerError:
                raise
            except Exception as error:  # vLLM raises many kinds
                raise EngineRefusedError(f"{FIELD}.{name}: vLLM refuses it: {error}") from error
            self._loaded.add(name)
        return chosen


class Recorder(StatLoggerBase):
    """Note the scheduler's figures of every iteration in an engine's load."""

    def __init__(self, load: EngineLoad, config: VllmConfig, _engine_index: int) -> None:
        self._load, self._config = load, config

    def record(self, scheduler_stats: Any, *_others: Any, **_more: Any) -> None:
        if (stats := scheduler_stats) is not None:
            self._load.iterated(
                stats.num_running_reqs, stats.num_waiting_reqs, stats.kv_cache_usage
            )

    def log_engine_initialized(self) -> None:
        cache = self._config.cache_config
        self._load.slots = (cache.num_gpu_blocks or 0) * (cache.block_size or 0)
