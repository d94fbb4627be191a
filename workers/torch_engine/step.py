"""The one decode loop's step, for every method and any mix of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as Seq
from typing import TypeVar

from workers.torch_engine.logit_processing import process
from workers.torch_engine.logprobs import token_logprobs
from workers.torch_engine.parts import Plan, TargetOutput
from workers.torch_engine.sequence import Sequence
from workers.torch_engine.target import Target
from workers.torch_engine.tree import Path, Proposal

Item = TypeVar("Item")


class StepError(RuntimeError):
    """A step failed for these sequences; the rest of the batch went on.

    attributable: whether the failure is known to be theirs, and not the engine's.
    """

    def __init__(self, sequences: Seq[Sequence], cause: Exception, *, attributable: bool) -> None:
        super().__init__(f"decode step: {type(cause).__name__}: {cause}")
        self.__cause__ = cause
        self.sequences = list(sequences)
        self.attributable = attributable


def step(batch: Seq[Sequence], target: Target) -> list[StepError]:
    """Draft, verify and emit once for every sequence of the batch.

    A sequence that has emitted nothing yet drafts nothing: reading (the rest of) its prompt emits
    its first token. Failures are returned, with the sequences they hit; the others have moved on.
    """
    errors: list[StepError] = []
    ordered = sorted(batch, key=lambda s: s.row.row)
    proposals = [_blank(sequence, len(batch)) for sequence in ordered]
    proposals = _draft(proposals, errors)
    if not proposals:
        return errors
    clock = time.perf_counter()
    try:
        output = _forward(proposals, target)
    except Exception as error:
        alone = len(proposals) == 1
        return [*errors, StepError([p.sequence for p in proposals], error, attributable=alone)]
    verified = _verify(proposals, output, errors)
    # only now, when the choice of tokens has read its results, has the forward surely ended
    seconds, forward = time.perf_counter() - clock, target.stopwatch.seconds()
    _book(proposals, "verify_seconds", forward)
    _book(proposals, "sample_seconds", max(0.0, seconds - forward))
    mixed = len({sequence.method.name for sequence in batch}) > 1
    for proposal, path in verified:
        try:
            _settle(proposal, path, output, target, len(batch), mixed)
        except Exception as error:
            errors.append(StepError([proposal.sequence], error, attributable=True))
    return errors


def read_chunk(sequence: Sequence, tokens: int, target: Target) -> list[StepError]:
    """Read so many more tokens of a prompt that is longer than that, and emit nothing."""
    plan = sequence.method.selector.choose(sequence)
    proposal = Proposal(sequence, plan, limit=0, chunk=tokens)
    path = Path((), sequence.tokens[sequence.row.length + tokens])
    try:
        output = _forward([proposal], target)
        target.commit(proposal, path, output)
        plan.drafter.commit(proposal, path, output)
    except Exception as error:
        return [StepError([sequence], error, attributable=True)]
    return []


def _settle(
    proposal: Proposal, path: Path, output: TargetOutput, target: Target, batch: int, mixed: bool
) -> None:
    """Every part that holds state moves on to the path; then its tokens are emitted. `mixed`:
    another method took part in the step."""
    sequence = proposal.sequence
    target.commit(proposal, path, output)
    proposal.plan.drafter.commit(proposal, path, output)
    proposal.plan.stop.observe(proposal, path)
    sequence.method.selector.observe(proposal, path)
    if sequence.output_tokens:
        sequence.tally.decode_steps += 1
        sequence.tally.batch_sum += batch
        sequence.tally.mixed_steps += mixed
    sequence.emit(proposal, path, token_logprobs(proposal, path, output))


def _blank(sequence: Sequence, batch: int) -> Proposal:
    """An empty proposal; drafting beyond what may still be emitted would be thrown away."""
    plan: Plan = sequence.method.selector.choose(sequence)
    limit = 0
    if sequence.output_tokens:
        limit = min(plan.stop.limit(sequence, batch), sequence.remaining - 1)
    return Proposal(sequence, plan, limit)


def _draft(proposals: list[Proposal], errors: list[StepError]) -> list[Proposal]:
    """Let each drafter draft for all its sequences; those whose drafter failed are left out."""
    alive: list[Proposal] = []
    for members in _grouped(proposals, lambda p: id(p.plan.drafter)):
        clock = time.perf_counter()
        try:
            members[0].plan.drafter.propose([p for p in members if p.limit > 0])
        except Exception as error:
            errors.append(StepError([p.sequence for p in members], error, attributable=True))
            continue
        _book(members, "draft_seconds", time.perf_counter() - clock)
        alive.extend(members)
    alive.sort(key=lambda p: p.sequence.row.row)
    return alive


def _forward(proposals: list[Proposal], target: Target) -> TargetOutput:
    captures = frozenset[int]().union(*(p.plan.drafter.captures for p in proposals))
    # Looked at once: another thread may change them during the step.
    extra = [p.sequence.method.selector.extra_target_forwards for p in proposals]
    target.stopwatch.start()
    for done in range(max(extra)):
        # the same forward again writes the same keys, so it only costs its time
        repeated = [p for p, times in zip(proposals, extra, strict=True) if times > done]
        target.forward(repeated, captures)
    output = target.forward(proposals, captures)
    target.stopwatch.stop()
    return output


def _verify(
    proposals: list[Proposal], output: TargetOutput, errors: list[StepError]
) -> list[tuple[Proposal, Path]]:
    """Each verifier on its own sequences; where it fails, each of them alone."""
    verified: list[tuple[Proposal, Path]] = []
    for members in _grouped(proposals, lambda p: id(p.sequence.method.verifier)):
        verifier = members[0].sequence.method.verifier
        try:
            paths = verifier.verify(members, process(members, output))
            verified.extend(zip(members, paths, strict=True))
        except Exception as error:
            if len(members) == 1:
                errors.append(StepError([members[0].sequence], error, attributable=True))
            for member in members if len(members) > 1 else []:
                verified.extend(_verify([member], output, errors))
    return verified


def _book(proposals: Seq[Proposal], phase: str, seconds: float) -> None:
    """Add a phase's seconds to those it was spent for; the first token's step is not decoding."""
    for proposal in proposals:
        if proposal.sequence.output_tokens:
            tally = proposal.sequence.tally
            setattr(tally, phase, getattr(tally, phase) + seconds)


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
