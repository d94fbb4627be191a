"""Wrong rules of look-ups, of the choice among drafters and of what is kept for later are found
out, as in test_mutants.py: what they decide changes no answer, so that nothing else would notice.
"""

import random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from test_mutants import mutated

from workers.drafting.lookup import look_ups, occurrences, past
from workers.drafting.lookup.look_ups import Continuation
from workers.drafting.step_costs import StepCosts
from workers.torch_engine.drafters import adaptive
from workers.torch_engine.models import companion_rows
from workers.torch_engine.models.kv_pool import KvPool, KvShape, Lease
from workers.torch_engine.parts import Proposal
from workers.torch_engine.tree import DROPPED, ROOT

BYTES = 10**6


def looked_up(module: ModuleType, text: list[int], store: Any = None, scope: str = "") -> Any:
    """Look a text up with the module's LookUps."""
    one = module.LookUps(least=0.02, past=store or past.PastAnswers())
    one.begin("text", text, scope, greedy=True)
    return one.look_up("text", 8)


def looks_up(module: ModuleType) -> bool:
    """Past answers of the text's own scope, and what the text itself says rather than others."""
    store = past.PastAnswers(BYTES)
    store.add("mine", [1, 2, 3, 4, 5])
    store.work()
    mine, others = (looked_up(module, [1, 2, 3], store, scope) for scope in ("mine", "others"))
    own = looked_up(module, [1, 2, 3, 9, 9, 1, 2, 3], store, "mine")
    return (mine.tokens, others.tokens, own.tokens[:2]) == ((4, 5), (), (9, 9))


def learns(module: ModuleType) -> bool:
    """Only verified tokens change the trust, and each step is learned from once."""
    one, text = module.LookUps(least=0.02, past=past.PastAnswers()), [1, 2, 3, 4, 1, 2]
    one.begin("text", text, "", greedy=True)
    one.look_up("text", 2)
    one.learn("text", [9], 0)
    trust, before = one.trust, one._texts["text"].offsets["texts"]
    one.learn("text", [9], 0)
    return trust == 1.0 and one._texts["text"].offsets["texts"] == before < 0.0


def remembers(module: ModuleType) -> bool:
    """The newest answers, each in its scope, in so many bytes."""
    draw, store = random.Random(1), module.PastAnswers(90 * module.TOKEN_BYTES)
    answers = [[draw.randrange(9) for _ in range(30)] for _ in range(12)]
    for index, answer in enumerate(answers):
        store.add(str(index % 2), answer)
        store.work()
        if store.bytes > store.capacity:
            return False
    known = [piece for _, piece in store._pieces.values()]
    if known != answers[-len(known) :] or not known:
        return False
    for scope in ("0", "1"):
        own = [piece for its, piece in store._pieces.values() if its == scope]
        for pattern in answers:
            found = store.find(scope, pattern[:4])
            if not all(any(one.text is piece for piece in own) for one in found):
                return False
            if not all(one.text[one.start - one.matched : one.start] for one in found):
                return False
            if any(pattern is piece or pattern == piece for piece in own) and not found:
                return False
    return True


def indexes(module: ModuleType) -> bool:
    """Every place that something follows, and none at the text's end, where nothing does."""
    text = [1, 2, 3, 1, 2, 3, 1, 2]
    index = module.Index(text, (8, 4, 2, 1))
    index.extend(100)
    found = {(one.start, one.matched) for one in index.find(text)}
    return found == {(5, 5)} and index.find([7]) == []


def drafts(module: ModuleType) -> bool:
    """A chain of the first looked-up tokens, with their probabilities."""
    proposal = Proposal(sequence=None, plan=None, limit=9)  # type: ignore[arg-type]
    known = Continuation((4, 5, 6), ((1, "once"),) * 3, (0.9, 0.5, 0.1))
    module.fill(proposal, known, 2)
    survival = [round(float(torch.tensor(value).exp()), 3) for value in proposal.values]
    return (proposal.tokens, proposal.parents, survival) == ([4, 5], [ROOT, 0], [0.9, 0.5])


def wipes(module: ModuleType) -> bool:
    """A drafter's row whose sequence ended in what is no number."""
    pool = KvPool(
        KvShape(1, 1, 4),
        rows=3,
        capacity=8,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )
    rows, leases = module.CompanionRows(pool), [Lease(0), Lease(1)]
    for lease in leases:
        pool.data[:, rows.acquire(lease).row] = torch.nan if lease is leases[0] else 1.0
        rows[lease].length = 4
    leases[0].spoilt = True
    rows.release(leases[0])
    return not pool.data.isnan().any() and pool.free_rows == 2


class Drafted:
    """What a learned drafter drafted: a tree of falling probabilities, of which it read some."""

    def __init__(self, draw: random.Random) -> None:
        self.draft = Proposal(sequence=None, plan=None, limit=9)  # type: ignore[arg-type]
        self.by = SimpleNamespace(name="drafter")
        self.sure: list[float] = []
        for _ in range(draw.randrange(8)):
            parent = draw.randrange(ROOT, len(self.draft))
            token = draw.randrange(4)
            if all(self.draft.tokens[child] != token for child in self.draft.children(parent)):
                above = 1.0 if parent == ROOT else self.sure[parent]
                self.draft.add(token, parent)
                self.sure.append(above * draw.random())
        self.draft.cached = [node for node in range(len(self.draft)) if draw.random() < 0.6]

    def probabilities(self) -> list[float]:
        return list(self.sure)


def words(tree: Proposal, node: int) -> tuple[int, ...]:
    """The tokens from the root to a node."""
    return () if node < 0 else (*words(tree, tree.parents[node]), tree.tokens[node])


def merges(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Of a drafter's tree and looked-up tokens: every path once, with the better probability; the
    likeliest are kept, with their ancestors, and it is known where they lie in the drafter's
    cache."""
    draw = random.Random(2)
    for _ in range(300):
        one = module.Adaptive.__new__(module.Adaptive)
        used, sequence = Drafted(draw), SimpleNamespace(id=1)
        one._used, one._costs = {1: used}, StepCosts()
        proposal = Proposal(sequence=sequence, plan=None, limit=9)  # type: ignore[arg-type]
        sure, found = 1.0, []
        for _ in range(draw.randrange(5)):
            sure *= draw.random()
            found.append(sure)
        tokens = tuple(draw.randrange(4) for _ in found)
        survival = one._merge(proposal, Continuation(tokens, (), tuple(found)))
        expected = {words(used.draft, n): p for n, p in enumerate(used.sure)}
        for length, chance in enumerate(found, start=1):
            expected[tokens[:length]] = max(chance, expected.get(tokens[:length], 0.0))
        merged = [(words(proposal, node), p) for node, p in enumerate(survival)]
        if len(merged) != len(expected) or dict(merged) != expected:
            return False
        kept = draw.randrange(len(proposal) + 1)
        monkeypatch.setattr(module, "worthwhile", lambda *_, kept=kept: [kept])
        one._keep([proposal], [survival], 0.0)
        left = [expected[words(proposal, node)] for node in range(len(proposal))]
        if sorted(left, reverse=True) != sorted(expected.values(), reverse=True)[:kept]:
            return False
        for node, before in zip(proposal.cached, used.draft.cached, strict=False):
            path = words(used.draft, before)
            if words(proposal, node) != (() if node == DROPPED else path):
                return False
        if len(proposal.cached) != len(used.draft.cached):
            return False
    return True


# what is checked, the module, the line and its wrong form
MUTANTS: dict[str, tuple[Any, ModuleType, str, str]] = {
    "past answers of any scope": (
        looks_up,
        look_ups,
        "self._past.find(text.scope, text.tokens)",
        'self._past.find("mine", text.tokens)',
    ),
    "others are believed before the text itself": (
        looks_up,
        look_ups,
        "if one.expected > found.expected:",
        "if one.tokens:",
    ),
    "trust by tokens that nobody verified": (
        learns,
        look_ups,
        "        if verified:\n",
        "        verified = verified or len(looked_up.tokens)\n        if verified:\n",
    ),
    "a step is learned from twice": (
        learns,
        look_ups,
        "        text.looked_up = NOTHING\n",
        "",
    ),
    "the newest goes first": (remembers, past, "self._order.popleft()", "self._order.pop()"),
    "more than there is room for": (
        remembers,
        past,
        "while self.bytes + more > self.capacity",
        "while self.bytes > self.capacity",
    ),
    "n-grams of what was forgotten stay": (
        remembers,
        past,
        "known = self.find(gram)[count:]",
        "known = self.find(gram)[0:]",
    ),
    "one index for all scopes": (
        remembers,
        past,
        "self._scopes.setdefault(scope, _Scope())",
        'self._scopes.setdefault("0", self._scopes.setdefault("1", self._scopes.setdefault'
        "(scope, _Scope())))",
    ),
    "the text's end is a place": (
        indexes,
        occurrences,
        "min(len(self._text) - 1, self._indexed + most)",
        "min(len(self._text), self._indexed + most)",
    ),
    "the shortest match": (indexes, occurrences, "low, high = 0, min(", "low, high = 0, min(1, "),
    "all hang at the root": (drafts, adaptive, "len(proposal) - 1, value", "-1, value"),
    "all that was looked up": (drafts, adaptive, "found.tokens[:length]", "found.tokens"),
    "what is no number stays": (wipes, companion_rows, "own.spoilt = lease.spoilt", "pass"),
    "the same path twice": (
        merges,
        adaptive,
        "[child for child in proposal.children(at) if proposal.tokens[child] == token]",
        "list[int]()",
    ),
    "looked-up tokens hang at the root": (
        merges,
        adaptive,
        "at = proposal.add(token, at)",
        "at = proposal.add(token, ROOT)",
    ),
    "a node is as sure as the drafter alone": (
        merges,
        adaptive,
        "probabilities[at] = max(probabilities[at], probability)",
        "pass",
    ),
    "the unlikeliest are kept": (merges, adaptive, "-probabilities[node])", "probabilities[node])"),
    "nobody knows which nodes are cached": (
        merges,
        adaptive,
        "proposal.cached = list(used.draft.cached)",
        "pass",
    ),
}


def holds(check: Any, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A place or a parent that there is not is found out as well."""
    try:
        return bool(check(module, monkeypatch) if check is merges else check(module))
    except (KeyError, IndexError):
        return False


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_drafting(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    check, module, old, new = MUTANTS[name]
    assert not holds(check, mutated(monkeypatch, module, old, new), monkeypatch)


@pytest.mark.parametrize(
    ("check", "module"),
    [
        *((looks_up, look_ups), (learns, look_ups), (remembers, past), (indexes, occurrences)),
        *((drafts, adaptive), (wipes, companion_rows), (merges, adaptive)),
    ],
)
def test_the_checks_pass_without_mutants(
    monkeypatch: pytest.MonkeyPatch, check: Any, module: ModuleType
) -> None:
    assert holds(check, module, monkeypatch)
