"""Calls of drafters that may fail: their sequences then decode without drafts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import torch

from workers.drafting.failures import Failures
from workers.torch_engine.interfaces import Drafter, Proposal
from workers.torch_engine.models.kv_pool import TREE_ROOM, Lease
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, TokenTree

NEAR_ONE = 1e-2
"""How far a distribution's sum may be from 1, by rounding over a large vocabulary."""


class MalformedDraftError(ValueError):
    """A drafter proposed something that is not a draft."""


class DrafterGuard:
    """Call the drafters of an engine.

    After a failure none of the sequences has a draft in this step. The drafter tries each of them
    alone, and no longer drafts for those that it fails for. If it fails for all, it forgets them: a
    drafter that reads only tokens may begin them again, any other lacks hidden states. Failures are
    logged and counted. After several failed steps in a row a drafter is disabled for a while.

    vocab: of the target.
    """

    def __init__(self, vocab: int) -> None:
        self.failures = Failures()
        self._vocab = vocab
        self._off: dict[Lease, set[int]] = {}

    def propose(self, drafter: Drafter, proposals: Sequence[Proposal]) -> bool:
        """Let a drafter fill the proposals, and return whether it drafted. They are empty where
        it fails or is disabled."""
        ready = [p for p in proposals if not self.is_off(drafter, p.sequence)]
        if not ready or self.failures.rests(drafter.name):
            return False
        error = self.attempt(drafter, ready)
        if error is None:
            self.failures.drafted(drafter.name)
            return True
        for proposal in ready:
            proposal.clear()
        failed = self._failing_alone(drafter, ready)
        if failed and len(failed) < len(ready):
            for sequence, cause in failed:
                self.blame(drafter, [sequence], cause, again=False)
                self.failures.drafted(drafter.name)  # it does for the others
        else:
            everyone = [sequence for sequence, _ in failed]
            self.blame(drafter, everyone, error, again=not drafter.captures)
        return False

    def attempt(self, drafter: Drafter, proposals: Sequence[Proposal]) -> Exception | None:
        """Let a drafter fill proposals. Return why they cannot be used."""
        limits = [
            proposal.limit if proposal.sequence.prediction is None else proposal.sequence.draftable
            for proposal in proposals
        ]
        try:
            drafter.propose(proposals)
            _check(proposals, limits, self._vocab)
        except Exception as error:
            return error
        return None

    def _failing_alone(
        self, drafter: Drafter, proposals: Sequence[Proposal]
    ) -> list[tuple[DecodeSequence, Exception]]:
        """Return the sequences that a drafter fails for alone, and why, after it failed for all
        together.

        These drafts are not used: whether a draft is dropped must not depend on what was drawn.
        """
        failed = list[tuple[DecodeSequence, Exception]]()
        for one in proposals:
            alone = Proposal(
                sequence=one.sequence, plan=one.plan, limit=one.limit, others=one.others
            )
            if (cause := self.attempt(drafter, [alone])) is not None:
                failed.append((one.sequence, cause))
        return failed

    def tell(self, drafter: Drafter, sequence: DecodeSequence, call: Callable[[], None]) -> None:
        """Tell a drafter about a sequence's step, unless it is off the sequence. If that fails,
        take it off."""
        if self.is_off(drafter, sequence):
            return
        try:
            call()
        except Exception as error:
            self.blame(drafter, [sequence], error, again=False)

    def begin(
        self, drafter: Drafter, sequence: DecodeSequence, lease: Lease, source: Lease, length: int
    ) -> int:
        """Return how many tokens of another row need not be read again for a drafter; all of
        them if it fails, since it is then off the sequence."""
        try:
            return drafter.begin(sequence, lease, source, length)
        except Exception as error:
            self.failures.failed(drafter.name, error)
            self._off.setdefault(lease, set()).add(id(drafter))
            return length

    def drop(self, drafter: Drafter, lease: Lease) -> None:
        """Let a drafter free a kept row."""
        try:
            drafter.drop(lease)
        except Exception as error:
            self.failures.failed(drafter.name, error)

    def release(self, drafters: Collection[Drafter], sequence: DecodeSequence) -> None:
        """Let drafters forget a sequence that has ended."""
        for drafter in drafters:
            self._forget(drafter, sequence)
        self._off.pop(sequence.lease, None)

    def is_off(self, drafter: object, sequence: DecodeSequence) -> bool:
        """Return whether a drafter is off a sequence."""
        return bool(self._off) and id(drafter) in self._off.get(sequence.lease, ())

    def blame(
        self,
        drafter: Drafter,
        sequences: Sequence[DecodeSequence],
        error: Exception,
        *,
        again: bool,
    ) -> None:
        """Count a drafter's failure and make it forget the sequences. again: whether it may
        draft for them again."""
        self.failures.failed(drafter.name, error)
        for sequence in sequences:
            sequence.lease.degraded = True  # the drafter's row of it, which is released here
            self._forget(drafter, sequence)
            if not again:
                self._off.setdefault(sequence.lease, set()).add(id(drafter))

    def _forget(self, drafter: Drafter, sequence: DecodeSequence) -> None:
        try:
            drafter.release(sequence)
        except Exception as error:
            self.failures.failed(drafter.name, error)


def _check(proposals: Sequence[Proposal], limits: Sequence[int], vocab: int) -> None:
    """Raise MalformedDraftError for proposals that cannot be verified."""
    for proposal, limit in zip(proposals, limits, strict=True):
        _check_nodes(proposal, vocab)
        if len(proposal) > TREE_ROOM or proposal.drafted_levels > limit:
            raise MalformedDraftError(
                f"{len(proposal)} nodes on {proposal.drafted_levels} levels, where {TREE_ROOM} "
                f"nodes and {limit} levels fit"
            )
    if any(math.isnan(value) for proposal in proposals for value in proposal.values):
        raise MalformedDraftError("a node's probability is NaN")
    drawn = [q for proposal in proposals for q in proposal.q if q is not None]
    if any(q.shape != (vocab,) for q in drawn):
        raise MalformedDraftError(f"a distribution is not over {vocab} tokens")
    if drawn:
        sums = torch.stack([q.sum() for q in drawn]).tolist()
        if not all(math.isclose(total, 1.0, abs_tol=NEAR_ONE) for total in sums):
            raise MalformedDraftError("a distribution does not sum to 1")


def _check_nodes(tree: TokenTree, vocab: int) -> None:
    columns = (tree.parents, tree.depths, tree.q, tree.logits, tree.values)
    if any(len(column) != len(tree) for column in columns):
        raise MalformedDraftError("not all of its nodes have a token, a parent and a depth")
    chosen = set[tuple[int, int]]()
    for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
        if type(token) is not int or not 0 <= token < vocab:
            raise MalformedDraftError(f"node {node}: {token!r} is not a token below {vocab}")
        if not ROOT <= parent < node or (tree.is_chain and parent != node - 1):
            raise MalformedDraftError(f"node {node} cannot be below node {parent}")
        if tree.depths[node] != (0 if parent == ROOT else tree.depths[parent] + 1):
            raise MalformedDraftError(f"node {node} is not at depth {tree.depths[node]}")
        if tree.q[node] is None and (parent, token) in chosen:
            raise MalformedDraftError(f"token {token} is twice below node {parent}")
        chosen.add((parent, token))
