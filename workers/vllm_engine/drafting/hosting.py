"""Several drafters in vLLM's model runner, which is made for one."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from vllm.compilation.breakable_cudagraph import (
    BreakableCUDAGraphWrapper,
    is_breakable_cudagraph_enabled,
)
from vllm.config import CUDAGraphMode, SpeculativeConfig, VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import get_tp_group
from vllm.model_executor.model_loader.reload import (
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.kv_cache_interface import KVCacheConfig

from workers.head_files import load_weights
from workers.portfolio import ADAPTIVE
from workers.stopwatch import Stopwatch
from workers.vllm_engine.drafting.adaptive import Adaptive, Choice
from workers.vllm_engine.drafting.attempts import Attempts, Said
from workers.vllm_engine.drafting.autoregressive import AutoregressiveDrafter
from workers.vllm_engine.drafting.drafts import DraftCopy, Drafts
from workers.vllm_engine.drafting.portfolio import Portfolio
from workers.vllm_engine.drafting.stateless import MedusaDrafter, NgramDrafter, SuffixDrafter
from workers.vllm_engine.drafting.step import Step

if TYPE_CHECKING:
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

KV_CALLS = ("initialize_attn_backend", "initialize_cudagraph_keys", "dummy_run")
"""Calls of the model runner on a loaded drafter with KV."""
MEASURED_ROWS = (*range(1, 18), 20, 24, 25, 32, 33, 48, 64, 96)
MEASURED_CONTEXT = 2048
"""Tokens before the measured rows, or what the model has room for: the context of usual chats."""
ROUNDS = 2


class Drafter(Protocol):
    """One of vLLM's proposers, which drafts for some rows of a batch."""

    @property
    def proposer(self) -> Any:
        """vLLM's proposer, which loads the weights."""
        ...

    def propose(self, step: Step, rows: Sequence[int], tokens: int) -> Drafts:
        """Return drafts for some or all of the rows. Does not wait for the device."""
        ...


_BESIDE: dict[str, Callable[[VllmConfig, Any], Drafter]] = {
    "ngram": NgramDrafter,
    "suffix": SuffixDrafter,
    "medusa": MedusaDrafter,
    "eagle": AutoregressiveDrafter.in_addition,
    "eagle3": AutoregressiveDrafter.in_addition,
    "draft_model": AutoregressiveDrafter.in_addition,
}
WITH_MODEL = (AutoregressiveDrafter, MedusaDrafter)


class NoProposer:
    """The proposer that vLLM is configured with (method custom_class) where no drafter has KV."""

    def __init__(self, _config: VllmConfig) -> None:
        pass

    def load_model(self, target_model: torch.nn.Module) -> None:
        """Load nothing."""

    def propose(self, *_args: Any, **_kwargs: Any) -> list[list[int]]:
        """Fail: `host_portfolio` replaces the runner's call."""
        raise AssertionError("the engine was started without its shared worker")


def host_portfolio(runner: GPUModelRunner, portfolio: Portfolio) -> Drafters:
    """Make a model runner draft by the method that each request names.

    Call it before the models are loaded. The runner's calls on its one drafter reach all
    drafters.
    """
    assert runner.speculative_config is not None
    # Drafts are lists of different lengths, made once the CPU knows the sampled tokens.
    runner.speculative_config.disable_padded_drafter_batch = True
    drafters: dict[str, Drafter] = {}
    for name, options in portfolio.drafters.items():
        if name == portfolio.host:
            drafters[name] = AutoregressiveDrafter(runner.drafter)
        else:
            drafters[name] = _BESIDE[name](own_config(runner.vllm_config, options), runner)
    followers = [d for d in drafters.values() if isinstance(d, AutoregressiveDrafter)]
    others = [d.proposer for name, d in drafters.items() if name != portfolio.host]
    _pass_on(runner.drafter, "load_model", [one.load_model for one in others])
    if portfolio.host is not None:
        for call in KV_CALLS:
            of = [d.proposer for d in followers if d.proposer is not runner.drafter]
            _pass_on(runner.drafter, call, [getattr(one, call) for one in of])
        _pass_on(runner.drafter, "dummy_run", [one.rehearse for one in followers])
        initialize = runner.drafter.initialize_attn_backend

        def checked(cache: KVCacheConfig, *args: Any) -> None:
            refuse_groups(drafters, cache)
            initialize(cache, *args)

        runner.drafter.initialize_attn_backend = checked
    hosted = Drafters(runner, portfolio, drafters)
    runner.propose_draft_token_ids = hosted.propose
    runner._input_fits_in_drafter = _has_rows
    return hosted


class Drafters:
    """Draft for each row of a batch with its method's drafter. adaptive: the method that chooses,
    if there is one; only the first process of tensor parallelism has it, and the others follow."""

    def __init__(
        self, runner: GPUModelRunner, portfolio: Portfolio, drafters: Mapping[str, Drafter]
    ) -> None:
        self._runner, self._portfolio, self._drafters = runner, portfolio, drafters
        self._followers = {
            name: d for name, d in drafters.items() if isinstance(d, AutoregressiveDrafter)
        }
        learned = [n for n, d in drafters.items() if isinstance(d, WITH_MODEL)]
        self.attempts = Attempts(self._followers, learned)
        self._accepted: dict[tuple[str, str], list[int]] = {}
        self._fill: Callable[[], None] | None = None
        self.adaptive: Adaptive | None = None
        if portfolio.adaptive is not None and get_tp_group().rank_in_group == 0:
            unread = {name: follower.unread for name, follower in self._followers.items()}
            stopwatch = partial(Stopwatch, runner.device)
            self.adaptive = Adaptive(portfolio.adaptive, unread, stopwatch, self.attempts.failures)

    def reserve(self) -> None:
        """Allocate what drafters keep between steps, before vLLM measures the memory that KV may
        have."""
        runner = self._runner
        width = runner.model_config.get_hidden_size()
        for name, follower in list(self._followers.items()):
            layers = 1
            if follower.proposer.eagle3_use_aux_hidden_state:
                target: Any = runner.get_model()
                chosen = runner._get_eagle3_aux_layers_from_config()
                layers = len(chosen or target.get_eagle3_default_aux_hidden_state_layers())
            self.attempts.reserve(name, partial(follower.reserve, layers * width))

    def propose(self, *arguments: Any) -> list[list[int]]:
        """Return a list of each row's draft, which may be empty. `read` fills it in. Drafters
        without rows do not run.

        Replaces GPUModelRunner.propose_draft_token_ids and takes its arguments in their order: the
        fields of Step after the runner, then metadata that are not needed.
        """
        step = Step(self._runner, *arguments[:-2])
        methods = step.methods()
        self._count(step, methods)
        wanted = [self._tokens(step, row, method) for row, method in enumerate(methods)]
        rows_of = self._portfolio.rows(methods)
        adaptive = rows_of.pop(ADAPTIVE, [])
        followed = {
            name: sorted([*rows_of.get(name, []), *self._followed(name, adaptive)])
            for name in self._followers
        }
        for name, rows in followed.items():
            self._call(name, step, rows, partial(self._followers[name].take, step, rows))
        choice, asked = self._asked(step, rows_of, adaptive, wanted)
        drafts: dict[str, Drafts] = {}
        for name, tokens in asked.items():
            if tokens or isinstance(self._drafters[name], SuffixDrafter):
                said = self._call(name, step, tokens, partial(self._draft, step, name, tokens))
                drafts |= {} if said is None else {name: said}
        for name, rows in followed.items():
            follower = self._followers[name]
            if behind := follower.behind(step, rows):
                self._call(name, step, behind, partial(follower.keep_up, step, behind))
        lists: list[list[int]] = [[] for _ in methods]
        copied, requests = DraftCopy(self._runner, drafts), [*step.runner.input_batch.req_ids]

        def fill() -> None:
            found: dict[int, list[int]] = {}
            for name, of_rows in copied.read().items():
                found |= self.attempts.checked(name, requests, of_rows)
            if self.adaptive is not None:
                undrafted = [requests[row] for row in choice.drafted if row not in found]
                self.adaptive.undrafted(undrafted)
            found |= {row: choice.tokens_of(row, found) for row in adaptive}
            lists[:] = [found.get(row, [])[:most] for row, most in enumerate(wanted)]

        self._fill = fill
        return lists

    def read(self) -> None:
        """Fill in the drafts of the last step. Call it when vLLM's scheduler asks for them: the
        device may have drafted meanwhile."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill()

    def take_acceptance(self) -> list[tuple[str, str, list[int]]]:
        """Return drafts, draft tokens and accepted ones by method and drafter since the last
        call. A learned drafter has the name of its method."""
        counted, self._accepted = self._accepted, {}
        return [(*names, counts) for names, counts in counted.items()]

    def exchange(self, drafter: str, folder: Path) -> None:
        """Load another head into a drafter; see `exchange_weights`."""
        exchange_weights(self._drafters[drafter].proposer, self._runner.get_model(), folder)
        if self.adaptive is not None:
            self.adaptive.controller.estimates.exchanged(drafter)

    @property
    def eager(self) -> list[str]:
        """The drafters with a model that replay no CUDA graphs although the target does."""
        if self._runner.compilation_config.cudagraph_mode == CUDAGraphMode.NONE:
            return []
        models = {n: d.proposer for n, d in self._drafters.items() if isinstance(d, WITH_MODEL)}
        return [name for name, proposer in models.items() if not _replays(proposer)]

    def measure(self) -> None:
        """Time the target's forwards of one sequence by rows before serving, if there is an
        adaptive method: on the device's clock, with attention to a usual context. Served steps
        correct the times. The shorter of two rounds counts: other work disturbs it least."""
        if self._portfolio.adaptive is None:
            return
        most = min(self._runner.max_num_tokens, self._runner.max_model_len)
        watch = Stopwatch(self._runner.device)
        with _one_sequence(self._runner):
            for rows in MEASURED_ROWS[: bisect_right(MEASURED_ROWS, most)]:
                seconds = min(self._measured(rows, watch) for _ in range(ROUNDS))
                if self.adaptive is not None:
                    self.adaptive.costs.measured(rows, seconds)

    def _measured(self, rows: int, watch: Stopwatch) -> float:
        """Return the seconds of a forward of so many tokens with all logits."""
        context = min(MEASURED_CONTEXT, self._runner.max_model_len - rows) + rows
        watch.start()
        hidden_states, _ = self._runner._dummy_run(
            rows, force_attention=True, profile_seq_lens=context
        )
        self._runner.model.compute_logits(hidden_states[:rows])
        watch.stop()
        return watch.seconds()

    def _count(self, step: Step, methods: Sequence[str | None]) -> None:
        """Count what the target accepted of each row's draft. Call it before the next choice."""
        for row, (drafted, new) in enumerate(zip(step.drafted(), step.sampled, strict=True)):
            method = methods[row]
            if not drafted or not new or method is None:
                continue
            drafter = method
            if self.adaptive is not None and self._portfolio.methods[method].drafter == ADAPTIVE:
                drafter = self.adaptive.author(step.request(row))
            counts = self._accepted.setdefault((method, drafter), [0, 0, 0])
            for at, more in enumerate((1, drafted, len(new) - 1)):
                counts[at] += more

    def _call(
        self, name: str, step: Step, rows: Iterable[int], call: Callable[[], Said]
    ) -> Said | None:
        return self.attempts.call(name, [step.request(row) for row in rows], call)

    def _asked(
        self, step: Step, rows_of: Mapping[str, list[int]], adaptive: list[int], wanted: list[int]
    ) -> tuple[Choice, dict[str, dict[int, int]]]:
        """Return the adaptive method's choice, and by drafter and row the draft tokens that are
        wanted of it. A drafter that rests is left out."""
        choice = self._choice(step, adaptive, wanted)
        asked: dict[str, dict[int, int]] = {}
        for name in self._drafters:
            rows = {row: wanted[row] for row in rows_of.get(name, []) if wanted[row]}
            if name == choice.drafter:
                rows |= choice.drafted
            if not (rows and self.attempts.failures.rests(name)):
                asked[name] = rows
        if self._portfolio.adaptive is not None:  # else all processes know the same
            choice, asked = get_tp_group().broadcast_object((choice, asked))
        return choice, asked

    def _choice(self, step: Step, adaptive: list[int], wanted: list[int]) -> Choice:
        """Return what the adaptive method drafts; nothing where choosing fails."""
        if self.adaptive is None:
            return Choice()
        choose = partial(self.adaptive.choose, step, adaptive, wanted)
        choice = self.attempts.call(ADAPTIVE, (), choose)
        if choice is None:
            self.adaptive.restart()
        return choice or Choice()

    def _draft(self, step: Step, name: str, rows: Mapping[int, int]) -> Drafts:
        """Return one drafter's drafts. rows: tokens by row. The adaptive method learns the time."""
        tokens = max(rows.values(), default=0)
        timed: AbstractContextManager[None] = nullcontext()
        if self.adaptive is not None:
            timed = self.adaptive.timed(name, tokens, [step.request(row) for row in rows])
        with timed:
            return self._drafters[name].propose(step, sorted(rows), tokens)

    def _followed(self, name: str, rows: list[int]) -> list[int]:
        """Return the adaptive method's rows that a drafter's KV must follow."""
        options = self._portfolio.adaptive
        learned = options is not None and name in {one.drafter for one in options.learned}
        return rows if learned else []

    def _tokens(self, step: Step, row: int, method: str | None) -> int:
        """Return how many tokens a row may draft: none before its prompt is read, and no more
        than the context has room for."""
        drafting = None if method is None else self._portfolio.methods.get(method)
        if drafting is None or not step.sampled[row]:
            return 0
        room = self._runner.max_model_len - step.length(row) - 1
        return max(0, min(drafting.tokens, room))


def _replays(proposer: Any) -> bool:
    """Return whether a drafter's forwards replay CUDA graphs. vLLM has none for Medusa's heads, and
    where it captures a model in breakable pieces, only those of the host."""
    dispatcher = getattr(proposer, "cudagraph_dispatcher", None)
    if dispatcher is None or dispatcher.cudagraph_mode == CUDAGraphMode.NONE:
        return False
    wrapped = isinstance(proposer.model, BreakableCUDAGraphWrapper)
    return wrapped or not is_breakable_cudagraph_enabled()


def _pass_on(host: Any, call: str, others: Sequence[Callable[..., None]]) -> None:
    """Make a call on the host reach the other drafters too."""
    own = getattr(host, call)

    def on_all(*args: Any, **kwargs: Any) -> None:
        for one in (own, *others):
            one(*args, **kwargs)

    setattr(host, call, on_all)


@contextmanager
def _one_sequence(runner: GPUModelRunner) -> Iterator[None]:
    """Let the runner's dummy runs be of one sequence with KV blocks of its own, and without
    drafters."""
    blocks = [table.block_table.np[0] for table in runner.input_batch.block_table.block_tables]
    for row in blocks:
        row[:] = np.arange(len(row)) % runner.kv_cache_config.num_blocks
    with (
        patch.object(runner.drafter, "dummy_run", lambda *_, **__: None, create=True),
        patch.object(runner.scheduler_config, "max_num_seqs", 1),
    ):
        yield
    for row in blocks:
        row[:] = 0


def refuse_groups(drafters: Mapping[str, Drafter], cache: KVCacheConfig) -> None:
    """Raise RuntimeError for a drafter whose layers are not in one group of vLLM's KV cache: it
    reads and writes by one block table."""
    for name, drafter in drafters.items():
        if isinstance(drafter, AutoregressiveDrafter):
            layers = drafter.proposer._draft_attn_layer_names
            groups = [layers & {*group.layer_names} for group in cache.kv_cache_groups]
            if layers not in groups:
                raise RuntimeError(
                    f"drafter {name} cannot share an engine: its layers are in "
                    f"{sum(map(bool, groups))} groups of vLLM's KV cache instead of one. Leave "
                    "out layout: shared, or its method"
                )


def _has_rows(attention: CommonAttentionMetadata | None) -> bool:
    """Return whether there are rows; replaces GPUModelRunner._input_fits_in_drafter, which stops
    all drafting when one sequence is near the end of the context."""
    return attention is not None


def own_config(base: VllmConfig, options: Mapping[str, Any]) -> VllmConfig:
    """Return vLLM's configuration with this as its only drafter, around the same target."""
    config = copy.copy(base)
    config.speculative_config = SpeculativeConfig(
        **options,
        target_model_config=base.model_config,
        target_parallel_config=base.parallel_config,
    )
    # A draft model reads one token more of each sequence than the target; vLLM's scheduler
    # leaves room for it only where it is the engine's own method.
    extra = config.speculative_config.max_num_new_slots_for_drafting
    if extra:
        config.scheduler_config = copy.copy(base.scheduler_config)
        config.scheduler_config.max_num_batched_tokens += extra * base.scheduler_config.max_num_seqs
        # The copy shares the registry of layers.
        config.compilation_config = copy.copy(base.compilation_config)
        config.compilation_config.compile_ranges_endpoints = [
            *base.compilation_config.compile_ranges_endpoints,
            config.scheduler_config.max_num_batched_tokens,
        ]
    return config


def exchange_weights(proposer: Any, target: nn.Module, folder: Path) -> None:
    """Load the weights of another head of the same shapes into a proposer of vLLM's.

    vLLM's layerwise reload keeps the tensors that CUDA graphs and compiled code read, and copies
    into them. Raises whatever vLLM raises; then the drafter may draft nonsense, and the target is
    as before.
    """
    model = proposer.model
    if isinstance(model, BreakableCUDAGraphWrapper):
        model = model.unwrap()
    config = proposer.vllm_config
    weights = load_weights(folder)
    with set_current_vllm_config(config), _without_modules_of(target, model):
        initialize_layerwise_reload(model)
        try:
            model.load_weights(weights.items())
        finally:
            finalize_layerwise_reload(model, config.speculative_config.draft_model_config)
    if "token_map" in weights:
        # Medusa creates it while it loads, so the reload puts the old one back.
        model.token_map.data.copy_(weights["token_map"])


@contextmanager
def _without_modules_of(target: nn.Module, model: nn.Module) -> Iterator[None]:
    """Take the modules that a drafter shares with the target out of it meanwhile: its embedding
    and its LM head where it has none of its own."""
    owned = set(target.modules())
    shared = [
        (parent, name, child)
        for parent in list(model.modules())
        if parent not in owned
        for name, child in list(parent.named_children())
        if child in owned
    ]
    for parent, name, _ in shared:
        delattr(parent, name)
    try:
        yield
    finally:
        for parent, name, child in shared:
            setattr(parent, name, child)
