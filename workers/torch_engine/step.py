"""One step of the decode loop, for any mix of methods."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import TypeVar

from schemas import TokenLogprobs
from workers.drafting.step_costs import Finished
from workers.engine import RequestFaultError
from workers.torch_engine.drafters.jump_forward import force, forced
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.method import Method
from workers.torch_engine.processed_logits import process
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.target import Target
from workers.torch_engine.tree import Path
from workers.torch_engine.verifiers import dead_nodes

log = logging.getLogger(__name__)

Item = TypeVar("Item")
NOT_NUMBERS = "the target's logits are NaN or infinite"


class NotANumberError(ArithmeticError):
    """The target's logits for a sequence are NaN or infinite."""


class StepError(RuntimeError):
    """A step failed for a sequence; the rest of the batch went on."""

    def __init__(self, sequence: DecodeSequence, cause: Exception) -> None:
        super().__init__(f"decode step: {type(cause).__name__}: {cause}")
        self.__cause__ = cause
        self.sequence = sequence


def step(
    batch: Sequence[DecodeSequence], target: Target, methods: Mapping[str, Method]
) -> list[StepError]:
    """Draft, verify and emit once for every sequence of the batch.

    A sequence that has emitted nothing yet drafts nothing: reading (the rest of) its prompt emits
    its first token. Failures are returned, with the sequences they hit; the others have moved on.
    """
    clock = time.perf_counter()
    ordered = sorted(batch, key=lambda s: s.lease.row)
    before = [sequence.output_tokens for sequence in ordered]
    proposals = [_blank(s, methods[s.method]) for s in ordered]
    free = _draft(proposals, methods)
    rows = len(ordered) + sum(map(len, proposals))
    drafting = time.perf_counter() - clock
    together = Counter(sequence.method for sequence in batch)
    for sequence in ordered:
        if sequence.output_tokens:
            sequence.by_method.update(together)
    errors = _decode(proposals, target, methods)
    if free and all(before) and not errors:
        tokens = sum(sequence.output_tokens for sequence in ordered) - sum(before)
        seconds = time.perf_counter() - clock
        finished = Finished(len(ordered), tokens, rows, seconds, drafting)
        for drafter in dict.fromkeys(methods[s.method].plan.drafter for s in ordered):
            drafter.finished(finished)
    return errors


def _decode(
    proposals: list[Proposal], target: Target, methods: Mapping[str, Method]
) -> list[StepError]:
    """Verify and emit. If the forward fails, each sequence gets one of its own."""
    clock = time.perf_counter()
    try:
        output = _forward(proposals, target)
    except Exception as error:
        return _decode_each(proposals, error, target, methods)
    degraded = _degraded(proposals, output)
    numbers = [proposal for proposal in proposals if proposal not in degraded]
    errors = list[StepError]()
    verified = _verify(numbers, output, methods, errors)
    # the forward has ended only now that the choice of tokens has read its results
    seconds, forward = time.perf_counter() - clock, target.stopwatch.seconds()
    _book(numbers, "verify_seconds", forward)
    _book(numbers, "sample_seconds", max(0.0, seconds - forward))
    for proposal, path in verified:
        errors += _settle(proposal, path, output, target, methods)
    for proposal in degraded:
        errors += _decode_shallower(proposal, target, methods)
    return errors


def _decode_each(
    proposals: list[Proposal], cause: Exception, target: Target, methods: Mapping[str, Method]
) -> list[StepError]:
    """Decode each sequence alone after a forward failed, and then without its draft."""
    if len(proposals) > 1:
        log.error("a forward of %d sequences failed", len(proposals), exc_info=cause)
        return [error for p in proposals for error in _decode([p], target, methods)]
    [alone] = proposals
    if not len(alone):
        return [StepError(alone.sequence, cause)]
    alone.keep([])
    errors = _decode(proposals, target, methods)
    if not errors:
        guard = methods[alone.sequence.method].guard
        guard.blame(alone.plan.drafter, [alone.sequence], cause, again=False)
    return errors


def _decode_shallower(
    proposal: Proposal, target: Target, methods: Mapping[str, Method]
) -> list[StepError]:
    """Decode a sequence whose logits are not numbers without the deepest levels of its draft.

    A NaN spreads over the whole row, since masked keys meet a weight of 0. The level that spoils
    the rows above it stays in the tree unread, as dead nodes.
    """
    sequence, errors = proposal.sequence, list[StepError]()
    try:
        proposal.keep(sorted(range(len(proposal)), key=lambda node: proposal.depths[node]))
        for depth in reversed(range(proposal.drafted_levels)):
            target.pool.clear(sequence.lease)
            read = copy(proposal)
            read.keep([node for node, at in enumerate(proposal.depths) if at < depth])
            output = _forward([read], target)
            if not _degraded([read], output):
                proposal.keep([node for node, at in enumerate(proposal.depths) if at <= depth])
                proposal.row = read.row
                output.add_dead(len(proposal) - len(read))
                break
        else:
            raise NotANumberError(NOT_NUMBERS)
    except Exception as error:
        return [StepError(sequence, error)]
    for verified, path in _verify([proposal], output, methods, errors):
        errors += _settle(verified, path, output, target, methods)
    return errors


def read_chunk(
    sequence: DecodeSequence, tokens: int, target: Target, method: Method
) -> list[StepError]:
    """Read a chunk of a longer prompt, and emit nothing."""
    proposal = Proposal(sequence=sequence, plan=method.plan, limit=0, chunk=tokens)
    path = Path((), sequence.tokens[sequence.lease.length + tokens])
    try:
        output = _forward([proposal], target)
        if any(output.read(best=False)):
            raise NotANumberError(NOT_NUMBERS)
    except Exception as error:
        return [StepError(sequence, error)]
    return _settle(proposal, path, output, target, {method.name: method})


def _settle(
    proposal: Proposal,
    path: Path,
    output: TargetOutput,
    target: Target,
    methods: Mapping[str, Method],
) -> list[StepError]:
    """Move every part with state on to the path, then emit its tokens if it is no chunk."""
    sequence, plan = proposal.sequence, proposal.plan
    guard = methods[sequence.method].guard
    try:
        sequence.read_prompt(prompt_logprobs(proposal, output))
        target.commit(proposal, path, output)
        guard.tell(plan.drafter, sequence, lambda: plan.drafter.commit(proposal, path, output))
        if proposal.chunk is None:
            sequence.emit(proposal, path, token_logprobs(proposal, path, output), proposal.drafter)
    except Exception as error:
        return [StepError(sequence, error)]
    return []


def _blank(sequence: DecodeSequence, method: Method) -> Proposal:
    """Return an empty proposal, limited to the tokens that may still be emitted."""
    plan = method.plan
    drafts = sequence.output_tokens and not method.guard.is_off(plan.drafter, sequence)
    limit = min(plan.stop.limit, sequence.draftable) if drafts else 0
    return Proposal(sequence=sequence, plan=plan, limit=limit)


def _draft(proposals: list[Proposal], methods: Mapping[str, Method]) -> bool:
    """Let each drafter draft for all its sequences; where it fails they have no drafts. Return
    whether no grammar forced a token.

    Every draft begins with the tokens that the request's grammar forces. A drafter is not asked
    where it could add nothing to them.
    """
    free = True
    for members in _grouped(proposals, lambda p: id(p.plan.drafter)):
        clock = time.perf_counter()
        given = [forced(member) for member in members]
        free = free and not any(given)
        asked = [p for p, tokens in zip(members, given, strict=True) if p.limit > len(tokens)]
        for member in asked:
            member.others = len(proposals) - len(asked)
        guard = methods[members[0].sequence.method].guard
        guard.propose(members[0].plan.drafter, asked)
        for member, tokens in zip(members, given, strict=True):
            force(member, tokens)
        _book(members, "draft_seconds", time.perf_counter() - clock)
    return free


def _forward(proposals: list[Proposal], target: Target) -> TargetOutput:
    captures = frozenset[int]().union(*(p.plan.drafter.captures for p in proposals))
    target.stopwatch.start()
    output = target.forward(proposals, captures)
    target.stopwatch.stop()
    return output


def _degraded(proposals: Sequence[Proposal], output: TargetOutput) -> list[Proposal]:
    """Return the proposals whose logits are not numbers."""
    sequences = [proposal.sequence for proposal in proposals]
    greedy = any(s.sampling.temperature == 0.0 and s.processor is None for s in sequences)
    degraded = output.read(best=greedy)
    if not any(degraded):
        return []
    return [p for p in proposals if any(degraded[p.row : p.row + len(p) + 1])]


def _verify(
    proposals: list[Proposal],
    output: TargetOutput,
    methods: Mapping[str, Method],
    errors: list[StepError],
) -> list[tuple[Proposal, Path]]:
    """Run each verifier on its own sequences; where it fails, on each of them alone, and then
    without its draft."""
    verified: list[tuple[Proposal, Path]] = []
    for members in _grouped(proposals, lambda p: id(methods[p.sequence.method].verifier)):
        verifier = methods[members[0].sequence.method].verifier
        try:
            paths = dead_nodes.verify(verifier, members, process(members, output))
            verified.extend(zip(members, paths, strict=True))
        except Exception as error:
            if len(members) > 1:
                for member in members:
                    verified.extend(_verify([member], output, methods, errors))
                continue
            [alone] = members
            if not len(alone) or isinstance(error, RequestFaultError):
                errors.append(StepError(alone.sequence, error))
                continue
            alone.keep([])
            if undrafted := _verify(members, output, methods, errors):
                guard = methods[alone.sequence.method].guard
                guard.blame(alone.plan.drafter, [alone.sequence], error, again=False)
            verified.extend(undrafted)
    return verified


def _book(proposals: Sequence[Proposal], phase: str, seconds: float) -> None:
    """Add a phase's seconds to its sequences; the first token's step is not decoding."""
    for proposal in proposals:
        if proposal.sequence.output_tokens:
            proposal.sequence.seconds[phase] += seconds


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


ROWS_AT_ONCE = 64
"""Rows of a prompt whose log probabilities are computed together, each as long as the
vocabulary."""


def token_logprobs(proposal: Proposal, path: Path, output: TargetOutput) -> list[TokenLogprobs]:
    """Return the log probabilities of a path's tokens and the bonus, from the target's raw
    logits; empty where the request wants none."""
    wanted = proposal.sequence.sampling.logprobs
    if wanted is None:
        return []
    tokens = [*(proposal.tokens[node] for node in path.nodes), path.bonus]
    rows = [proposal.row, *(proposal.row + 1 + node for node in path.nodes)]
    return _of(output, rows, tokens, wanted)


def prompt_logprobs(proposal: Proposal, output: TargetOutput) -> list[TokenLogprobs]:
    """Return the log probabilities of the prompt tokens that follow those of this forward, as far
    as they belong to the prompt; empty where the request wants none."""
    sequence = proposal.sequence
    wanted = sequence.sampling.prompt_logprobs
    if wanted is None or not sequence.reads_prompt:
        return []
    begin, pending = sequence.lease.length, output.pending[sequence.id]
    tokens = sequence.tokens[begin + 1 : begin + pending + 1]
    first = proposal.row - pending + 1
    found = list[TokenLogprobs]()
    for at in range(0, len(tokens), ROWS_AT_ONCE):
        some = tokens[at : at + ROWS_AT_ONCE]
        found += _of(output, range(first + at, first + at + len(some)), some, wanted)
    return found


def _of(
    output: TargetOutput, rows: Sequence[int], tokens: Sequence[int], wanted: int
) -> list[TokenLogprobs]:
    """Return the log probabilities of tokens, each by its row of raw logits."""
    logprobs = output.raw[list(rows)].log_softmax(-1)
    chosen = logprobs[range(len(tokens)), list(tokens)].tolist()
    best = logprobs.topk(min(wanted, logprobs.shape[-1]), dim=-1)
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        TokenLogprobs(chosen=value, top=tuple(zip(ids, values, strict=True)))
        for value, (ids, values) in zip(chosen, tops, strict=True)
    ]
