"""Drafters without a model: none, and prompt look-up, which copies what followed the last tokens
earlier in the sequence."""

from collections.abc import Sequence

from workers.drafting.lookup.look_ups import EACH, PER_STEP
from workers.drafting.lookup.occurrences import Places, key_of
from workers.torch_engine.build_context import BuildContext
from workers.torch_engine.interfaces import Proposal, TargetOutput
from workers.torch_engine.registry import register
from workers.torch_engine.sequence import DecodeSequence
from workers.torch_engine.tree import Path


class NgramTable:
    """Index where each n-gram of a growing token list ended, for n from min_n to max_n.

    A token costs one dictionary entry per n, and a look-up one access per n.
    """

    def __init__(self, min_n: int, max_n: int) -> None:
        self._sizes = range(max_n, min_n - 1, -1)
        self._ends = Places()
        self._indexed = 0

    def extend(self, tokens: Sequence[int], most: int = PER_STEP) -> int:
        """Index up to `most` more tokens, but for the last one; return how many."""
        last = min(len(tokens) - 1, self._indexed + most)
        first = max(0, self._indexed + 1 - max(self._sizes))
        ends = [*range(self._indexed + 1, last + 1)]
        for n in self._sizes if ends else ():
            self._ends.add_ends(tokens[first:last], n, ends[max(0, n - ends[0]) :], first)
        self._indexed += len(ends)
        return len(ends)

    def find(self, tokens: Sequence[int], gamma: int, *, recent: bool) -> int | None:
        """Return the index after an earlier occurrence of the longest known suffix; None without
        one.

        recent: take the latest occurrence with gamma tokens after it, and the earliest where
        none has so many; otherwise the earliest.
        """
        for n in self._sizes:
            found = self._ends.find(key_of(tokens[-n:])) if n <= len(tokens) else []
            if not found:
                continue
            if recent:
                room = len(tokens) - gamma
                return next((end for end in reversed(found) if end <= room), found[0])
            return found[0]
        return None


@register("drafter", "none")
class NoDrafter:
    """Draft nothing, so that every step emits the target's token."""

    captures: frozenset[int] = frozenset()
    has_distribution = False

    def __init__(self, _context: BuildContext) -> None: ...

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Leave the proposals empty."""

    def commit(self, proposal: Proposal, path: Path, output: TargetOutput) -> None:
        """Do nothing: a drafter that reads tokens alone reads new ones when it is next asked."""

    def release(self, sequence: DecodeSequence) -> None:
        """Do nothing: there is no state."""


@register("drafter", "ngram")
class Ngram(NoDrafter):
    """Look the last max_n to min_n tokens up in the sequence's prompt and output.

    match: "recent" or "earliest" occurrence (see NgramTable.find). The default is the earliest,
    as in Hugging Face and vLLM: at gamma 8 it emits 5.25 tokens a step on edits, against 5.10;
    on other domains the two are within 1%. Tokens are chosen, not sampled.
    """

    def __init__(
        self,
        context: BuildContext,
        *,
        max_n: int = 4,
        min_n: int = 2,
        match: str = "earliest",
    ) -> None:
        super().__init__(context)
        if not 1 <= min_n <= max_n:
            raise ValueError(f"drafter 'ngram': needs 1 <= min_n <= max_n, not {min_n}, {max_n}")
        if match not in ("recent", "earliest"):
            raise ValueError(f"drafter 'ngram': match is 'recent' or 'earliest', not {match!r}")
        self._sizes = (min_n, max_n)
        self._recent = match == "recent"
        self._tables: dict[int, NgramTable] = {}

    def propose(self, proposals: Sequence[Proposal]) -> None:
        """Copy from the client's prediction where the response follows it, else up to `limit`
        tokens from after the match."""
        left = PER_STEP
        for proposal in proposals:
            tokens = proposal.sequence.tokens
            table = self._tables.setdefault(proposal.sequence.id, NgramTable(*self._sizes))
            left -= table.extend(tokens, max(EACH, left))
            start = table.find(tokens, proposal.limit, recent=self._recent)
            draft = [] if start is None else tokens[start : start + proposal.limit]
            if (prediction := proposal.sequence.prediction) is not None:
                matched = self._sizes[1] if draft else 0
                draft = prediction.draft(tokens, proposal.sequence.draftable, matched) or draft
            for token in draft:
                proposal.add(token, len(proposal) - 1)

    def release(self, sequence: DecodeSequence) -> None:
        """Drop the sequence's table."""
        self._tables.pop(sequence.id, None)
