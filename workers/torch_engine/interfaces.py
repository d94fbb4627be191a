"""The four parts of a decoding method, the plan of a step, and the proposal that they pass on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from workers.drafting.step_costs import Finished
from workers.torch_engine.distribution import Place
from workers.torch_engine.models.draft_logits import DraftLogits
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import ROOT, Path, TokenTree


@dataclass(slots=True)
class TargetOutput:
    """A target forward's results; `logits` [rows, vocab] float32, rows as Proposal.row says.

    Verifiers decide on `logits`, which requests may have biased, penalised or masked; `raw` are
    the target's own.
    dead: rows after which no token can be chosen; what `logits` hold there means nothing.
    hidden: captured states [tokens, hidden] of all tokens of the forward; `starts` gives each
    sequence's first token there, by sequence id, `pending` how many committed tokens precede its
    tree.
    """

    logits: Tensor
    hidden: dict[int, Tensor]
    starts: dict[int, int]
    pending: dict[int, int]
    unprocessed: Tensor | None = None
    dead: frozenset[int] = frozenset()
    _best: list[int] | None = field(default=None, init=False)

    @property
    def raw(self) -> Tensor:
        """The target's logits [rows, vocab] float32 before any request's processing."""
        return self.logits if self.unprocessed is None else self.unprocessed

    def read(self, *, best: bool) -> list[bool]:
        """Return per row whether it is NaN or infinite. With `best` read the most probable tokens
        in the same transfer, since each waits for the device.

        Sums tell, which cost a tenth of an argmax. A token that the model rules out is -inf.
        """
        sums = self.logits.sum(-1)
        degraded = sums.isnan() | (sums == torch.inf)
        # tracing a known text computes rows without logits
        if not best or not self.logits.shape[-1]:
            return list[bool](degraded.tolist())
        self._best, flags = torch.stack((self.logits.argmax(-1), degraded.long())).tolist()
        return list(map(bool, flags))

    def add_dead(self, count: int) -> None:
        """Add dead rows at the end."""
        first, vocab = self.logits.shape
        self.logits = torch.cat((self.logits, self.logits.new_zeros(count, vocab)))
        self.dead, self._best = frozenset(range(first, first + count)), None

    @property
    def best(self) -> list[int]:
        """The target's most probable token per row; computed once for the whole batch."""
        if self._best is None:
            self._best = self.logits.argmax(-1).tolist()
        return self._best


class Drafter(ABC):
    """Where draft tokens come from. One instance serves every method with the same settings.

    captures: hidden states wanted of every target forward (see Llama.forward). has_distribution:
    whether its nodes carry logits (and q where sampled). versions: HeadVersions, if it has a head
    that can be exchanged while it drafts. name: by which its failures are counted.
    """

    name = ""
    captures: frozenset[int] = frozenset()
    has_distribution = False
    versions: Any = None

    @abstractmethod
    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Fill the proposals, one per sequence, up to each one's limit."""

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:  # noqa: B027
        """Keep the state that belongs to the path, drop the rest.

        Called for the plan's drafter after every step of the sequence, prefill included, before
        the step's tokens are appended to it. A chunk of a long prompt counts as a step whose
        path has no nodes and, as its bonus, the prompt's next token; `output.pending` tokens of
        the sequence were read.
        """

    def release(self, sequence: DecodeSequence) -> None:  # noqa: B027
        """Forget a sequence; called once for every drafter, also those that never saw it."""

    def begin(self, sequence: DecodeSequence, lease: Lease, source: Lease, length: int) -> int:  # noqa: ARG002
        """Begin a sequence with the first `length` tokens that another row of the target's pool
        holds, or its own kept row (`source`). Return how many of them the target need not read
        again for the drafter."""
        return length

    def unread(self, sequence: DecodeSequence) -> int:  # noqa: ARG002
        """Return how many tokens of the sequence it must read before it drafts."""
        return 0

    def keep(self, sequence: DecodeSequence) -> None:  # noqa: B027
        """Keep its row along with the target's; called before the sequence is released."""

    def drop(self, lease: Lease) -> None:  # noqa: B027
        """Free a kept row."""

    def finished(self, step: Finished) -> None:  # noqa: B027
        """Learn what a step took that it drafted for."""


class Tree(Protocol):
    """Which shape a model's drafts take."""

    samples: bool
    """Whether nodes are drawn from a drafter's distribution above temperature 0."""

    def expand(self, proposals: Sequence[Proposal], logits: DraftLogits) -> None:
        """Add one level; each proposal's frontier becomes the nodes worth extending.

        logits: a row for each frontier node in order, or a row for each proposal that all its
        frontier nodes share.
        """
        ...

    def finish(self, proposals: Sequence[Proposal]) -> None:
        """Finish trees after the last level; nodes may be dropped here (Proposal.keep)."""
        ...


class Stop(Protocol):
    """How much to draft now."""

    @property
    def limit(self) -> int:
        """The greatest number of levels."""
        ...

    def goes_on(self, proposal: Proposal) -> bool:
        """Return whether to draft another level; called after each. Added tokens stay."""
        ...


class Verifier(Protocol):
    """What is kept of a proposal."""

    needs_distribution: bool
    """Whether it reads the drafter's logits or q."""
    takes_trees: bool
    """Whether a node may have siblings."""
    takes_sampled: bool
    """Whether nodes may be drawn from the drafter's distribution."""

    def verify(self, proposals: Sequence[Proposal], output: TargetOutput) -> list[Path]:
        """Return one path per proposal; draws come from each sequence's generator."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that draft for one sequence in one step."""

    drafter: Drafter
    tree: Tree
    stop: Stop


@dataclass(slots=True, eq=False, kw_only=True)
class Proposal(TokenTree):
    """A step's draft for one sequence: a token tree under its last token.

    limit: greatest number of levels; a row has room for 64 nodes beyond the context.
    chunk: committed tokens to read in this step, where more are pending (a long prompt); None
    reads them all.
    row: the target's logit row of the root; node i has row + 1 + i.
    others: sequences in the same step that other drafters draft for.
    drafter: which one drafted it, where the plan's chooses among several.
    """

    sequence: DecodeSequence
    plan: Plan
    limit: int
    chunk: int | None = None
    row: int = 0
    others: int = 0
    drafter: str | None = None

    def place(self, node: int) -> Place:
        """Return the place of the token after a node or ROOT, for a request with a seed."""
        seed = self.sequence.sampling.seed
        assert seed is not None
        depth = 0 if node == ROOT else self.depths[node] + 1
        return seed, self.sequence.answer_index + depth
