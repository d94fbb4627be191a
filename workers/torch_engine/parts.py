"""What a decoding method is made of: the five roles, and what the parts are built with."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from schemas import MethodSpec
from schemas.method import Setting
from workers.bundle import Bundle
from workers.torch_engine import registry
from workers.torch_engine.models.model import Model
from workers.torch_engine.tree import Path, Proposal

if TYPE_CHECKING:
    from workers.torch_engine.sequence import Sequence


class Drafter(Protocol):
    """Where draft tokens come from. One instance serves every method with the same settings."""

    captures: frozenset[int]
    """Hidden states wanted of every target forward (see Llama.forward)."""
    has_distribution: bool
    """Whether its nodes carry logits (and q where sampled)."""

    def propose(self, proposals: Seq[Proposal]) -> None:
        """Fill the proposals, one per sequence, all together; no deeper than each one's limit."""
        ...

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Keep the state that belongs to the path, drop the rest.

        Called for the plan's drafter after every step of the sequence, prefill included, before
        the step's tokens are appended to it. A chunk of a long prompt counts as a step whose
        path has no nodes and, as its bonus, the prompt's next token; `output.pending` tokens of
        the sequence were read.
        """
        ...

    def release(self, sequence: Sequence) -> None:
        """Forget a sequence; called once for every drafter, also those that never saw it."""
        ...


class Tree(Protocol):
    """Which shape a model's drafts take."""

    def expand(self, proposals: Seq[Proposal], logits: Tensor) -> None:
        """Add one level; each proposal's frontier becomes the nodes worth extending.

        logits: float32 [sum of frontiers, vocab], a row for each frontier node in order; or
        [proposals, vocab], a row that all frontier nodes of a proposal share.
        """
        ...

    def finish(self, proposals: Seq[Proposal]) -> None:
        """Called once after the last level: the place to drop nodes (Proposal.keep)."""
        ...


class Stop(Protocol):
    """How much to draft now."""

    def limit(self, sequence: Sequence, batch: int) -> int:
        """Greatest number of levels to draft for this step, decided before drafting."""
        ...

    def goes_on(self, proposal: Proposal) -> bool:
        """Asked after each level; a token that was added stays in the block."""
        ...

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Learn from what became of a proposal."""
        ...


class Verifier(Protocol):
    """What is kept of a proposal."""

    needs_distribution: bool
    """Whether it reads the drafter's logits or q."""
    takes_trees: bool
    """Whether a node may have siblings."""

    def verify(self, proposals: Seq[Proposal], output: TargetOutput) -> list[Path]:
        """One path per proposal; draws come from each sequence's own generator."""
        ...


class Selector(Protocol):
    """Which drafter, tree and stop a sequence uses in this step."""

    extra_target_forwards: int
    """Identical target forwards run and thrown away per step: makes a method slow on purpose."""

    def choose(self, sequence: Sequence) -> Plan:
        """The parts for this sequence's next step."""
        ...

    def observe(self, proposal: Proposal, path: Path) -> None:
        """Learn from what became of a proposal."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts that draft for one sequence in one step."""

    drafter: Drafter
    tree: Tree
    stop: Stop


@dataclass(slots=True)
class TargetOutput:
    """A target forward's results; `logits` [rows, vocab] float32, rows as Proposal.row says.

    Verifiers decide on `logits`, which requests may have biased, penalised or masked; `raw` are
    the target's own.
    hidden: captured states [tokens, hidden] of all tokens of the forward; `starts` gives each
    sequence's first token there, by sequence id, `pending` how many committed tokens precede its
    tree.
    """

    logits: Tensor
    hidden: dict[int, Tensor]
    starts: dict[int, int]
    pending: dict[int, int]
    unprocessed: Tensor | None = None
    _best: list[int] | None = field(default=None, init=False)

    @property
    def raw(self) -> Tensor:
        """The target's logits [rows, vocab] float32 before any request's processing."""
        return self.logits if self.unprocessed is None else self.unprocessed

    @property
    def best(self) -> list[int]:
        """Per row the target's most probable token; computed once for the whole batch."""
        if self._best is None:
            self._best = self.logits.argmax(-1).tolist()
        return self._best


class Method:
    """A MethodSpec's parts, built. Raises ValueError for parts that do not fit together."""

    def __init__(self, spec: MethodSpec, context: Context) -> None:
        self.spec = spec
        self.name = spec.name
        settings = spec.settings
        self.plan = Plan(
            drafter=context.drafter(spec.drafter, settings.get("drafter", {})),
            tree=registry.build("tree", spec.tree, context, settings.get("tree", {})),
            stop=registry.build("stop", spec.stop, context, settings.get("stop", {})),
        )
        build_selector = context.with_plan(self.plan)
        self.selector: Selector = registry.build(
            "selector", spec.selector, build_selector, settings.get("selector", {})
        )
        self.verifier: Verifier = registry.build(
            "verifier", spec.verifier, context, settings.get("verifier", {})
        )
        if self.verifier.needs_distribution and not self.plan.drafter.has_distribution:
            raise ValueError(
                f"method {spec.name!r}: verifier {spec.verifier!r} needs a drafter with a "
                f"distribution, which {spec.drafter!r} has not"
            )
        if not self.verifier.takes_trees and spec.tree != "chain":
            raise ValueError(
                f"method {spec.name!r}: verifier {spec.verifier!r} takes chains only, not the tree "
                f"{spec.tree!r}; use one_hot or, where children are sampled, multi_step"
            )


@dataclass
class Context:
    """What parts may be built from: the bundle, the device and the sizes of the engine.

    rows: sequences that can run at once; capacity: tokens of one sequence at most; chunk: tokens
    of prompts that may be read between two steps.
    target: its embedding and LM head may be shared. plan: the method's own parts, for selectors.
    """

    bundle: Bundle
    device: torch.device
    dtype: torch.dtype
    rows: int
    capacity: int
    vocab: int
    target: Model
    chunk: int
    plan: Plan | None = None
    _drafters: dict[str, Drafter] = field(default_factory=dict)

    def drafter(self, name: str, settings: dict[str, Setting]) -> Drafter:
        """The drafter of this name and settings; methods that agree on both share one."""
        key = f"{name} {sorted(settings.items())}"
        if key not in self._drafters:
            self._drafters[key] = registry.build("drafter", name, self, settings)
        return self._drafters[key]

    @property
    def drafters(self) -> list[Drafter]:
        """Every drafter built so far."""
        return list(self._drafters.values())

    def with_plan(self, plan: Plan) -> Context:
        """The same context for one method's selector."""
        return replace(self, plan=plan)
