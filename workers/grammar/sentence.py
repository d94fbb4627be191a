"""A bounded search for an answer that satisfies a grammar."""

import re

import llguidance.numpy
import numpy as np

from workers.engine import RequestFaultError
from workers.grammar.answer_matcher import AnswerMatcher
from workers.grammar.specification import GrammarError

MAX_BRANCHES = 16
MAX_MASKS = 64
"""Bounds of the search for a beginning that can continue."""

_ARROW = "⇦"
_START = "start"


def check_rules(log: str) -> None:
    """Raise GrammarError if the start rule derives no finite text.

    log: what llguidance writes while it compiles at its highest log level. llguidance has no other
    way to show its compiled rules, and leaves large grammars out of it: those are not checked.
    """
    rules = _rules(log)
    names, finite, found = {name for name, _ in rules}, set[str](), True
    while found:
        # Terminals, and whatever else the log may hold, are finite.
        more = {name for name, right in rules if all(s in finite or s not in names for s in right)}
        found, finite = not more <= finite, more
    if rules and _START not in finite:
        raise GrammarError("no finite answer satisfies it: every way through it recurs for ever")


def check_beginning(matcher: AnswerMatcher, vocab: int, end: frozenset[int]) -> None:
    """Raise GrammarError if every beginning of an answer leads to a dead end.

    The search is exhaustive or gives up, where the grammar is taken to be good: one that is not
    ends its answers with an error.
    """
    waiting, dead = [(matcher, list[int]())], ""
    for _ in range(MAX_MASKS):
        if not waiting:
            raise GrammarError(f"no answer satisfies it: {dead.removeprefix('grammar: ')}")
        here, tokens = waiting.pop()
        bits = llguidance.numpy.allocate_token_bitmask(1, vocab)
        try:
            here.advance(tokens)
            here.fill(bits, 0)
        except RequestFaultError as error:
            dead = str(error)
            continue
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()
        if here.ended or len(allowed) > MAX_BRANCHES or not end.isdisjoint(allowed):
            return
        waiting += [(here.copy(), [token]) for token in allowed]


def check_way_back(matcher: AnswerMatcher, vocab: int, end: frozenset[int]) -> None:
    """Raise GrammarError if a step cannot be taken back, as engines do that draft.

    matcher: at the beginning of an answer; it is moved.
    """
    bits = llguidance.numpy.allocate_token_bitmask(1, vocab)
    try:
        matcher.fill(bits, 0)
        for token in np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist():
            if token not in end:
                matcher.advance([token])
                matcher.back()
                return
    except RequestFaultError as error:
        raise GrammarError(f"answers cannot be drafted under it: {error}") from error


def _rules(log: str) -> list[tuple[str, list[str]]]:
    """Return the last grammar of a log as pairs of a rule's name and an alternative's symbols."""
    _, found, last = log.rpartition("Grammar:\n")
    last = re.split(r"^stats:", last, maxsplit=1, flags=re.MULTILINE)[0]
    name, rules = "", list[tuple[str, list[str]]]()
    for line in last.splitlines() if found else ():
        left, arrow, right = line.partition(_ARROW)
        if arrow:
            name = left.strip() or name
            rules.append((name, right.split()))
    return rules
