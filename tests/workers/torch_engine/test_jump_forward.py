"""Forced tokens of a grammar as drafts: what is forced, and that answers stay the same."""

import asyncio

import pytest
import table_world as world
from decoding import decode
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grammar import DATE, JSON, LARK, PROMPT, TOKENIZER, started

from schemas import Grammar, SamplingParams
from workers.bundle import Bundle
from workers.torch_engine.constraint import FAST_SECONDS, MOST_MASKS
from workers.torch_engine.drafters import jump_forward
from workers.torch_engine.interfaces import Proposal
from workers.torch_engine.tree import ROOT
from workers.torch_engine.verifiers.multi_step import MultiStep
from workers.torch_engine.verifiers.one_hot import OneHot
from workers.torch_engine.verifiers.rejection import Rejection

METHODS = ["naive", "draft_verify", "ngram", "suffix", "adaptive", "medusa", "eagle3", "specinfer"]


CHOICES = ["(a|b)", "[0-9]", "c?"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["ab", "abc", "x", *CHOICES]), min_size=1, max_size=6))
def test_text_is_forced_up_to_the_first_choice(parts: list[str]) -> None:
    first = next((at for at, part in enumerate(parts) if part in CHOICES), len(parts))
    without = "".join(parts[:first])
    tokens = started(Grammar(kind="regex", text="".join(parts))).forced(99)
    if first == len(parts):
        assert tokens.pop() == TOKENIZER.eos_token_id
    text = TOKENIZER.decode(tokens)
    assert without.startswith(text)
    # a token that also holds the choice may hide that the text before it is forced
    longest = max(len(TOKENIZER.convert_ids_to_tokens(i)) for i in range(len(TOKENIZER)))
    assert first < len(parts) or text == without
    assert len(without) - len(text) < longest


def test_text_that_goes_on_for_ever_is_forced_up_to_the_limit() -> None:
    grammar = Grammar(kind="lark", text='start: "a" /b+/ "b"')
    assert len(started(grammar).forced(5)) <= 5


def test_masks_of_one_call_are_bounded() -> None:
    """A grammar in which every token has many beginnings asks for several masks a token."""
    constraint = started(Grammar(kind="regex", text="abcab" * 60))
    tokens = constraint.forced(200)
    assert tokens
    assert constraint._matcher.masks <= MOST_MASKS
    before = constraint._matcher.masks
    constraint.advance(tokens)
    assert constraint.forced(200), "the next step goes on"
    assert constraint._matcher.masks <= before + MOST_MASKS


def test_a_slow_grammar_is_only_asked_for_the_masks_of_verification() -> None:
    constraint = started(Grammar(kind="regex", text="abcab"))
    assert constraint.forced(99)
    constraint._matcher._spent.seconds = constraint._matcher.masks * 2 * FAST_SECONDS
    assert constraint.forced(99) == []


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_tree_keeps_what_continues_the_forced_tokens(draw, tokens):
    proposal = Proposal(sequence=None, plan=None, limit=9)
    for _ in range(draw.randrange(9)):
        parent, token = draw.randrange(ROOT, len(proposal)), draw.randrange(4)
        if all(proposal.tokens[child] != token for child in proposal.children(parent)):
            proposal.add(token, parent)
    before = paths(proposal)
    jump_forward.force(proposal, tokens)
    forced = {tuple(tokens[: n + 1]) for n in range(len(tokens))}
    longer = {path for path in before if path[: len(tokens)] == tuple(tokens)}
    assert paths(proposal) == forced | longer


def paths(proposal: Proposal) -> set[tuple[int, ...]]:
    found = list[tuple[int, ...]]()
    for token, parent in zip(proposal.tokens, proposal.parents, strict=True):
        found.append((*(() if parent == ROOT else found[parent]), token))
    return set(found)


@pytest.mark.parametrize(
    ("verifier", "draft"),
    [
        (OneHot, world.chosen),
        pytest.param(OneHot, world.top_two, marks=pytest.mark.slow),
        (Rejection, world.sampled),
        pytest.param(MultiStep, world.two_drafters, marks=pytest.mark.slow),
    ],
)
def test_a_guessed_token_leaves_the_distribution_as_it_is(verifier, draft) -> None:
    """Text can be forced while its tokens are not."""

    def guessed(proposals) -> None:
        draft(proposals)
        for proposal in proposals:
            jump_forward.force(proposal, [(proposal.sequence.tokens[-1] + 1) % world.VOCAB, 0])

    assert world.fit(world.build(verifier), guessed, SamplingParams(temperature=0.9), 6000) > 1e-3


@pytest.mark.parametrize("wishes", [{}, {"temperature": 1.0, "seed": 3}])
async def test_answers_are_those_of_decoding_token_by_token(
    load_engine, tiny_bundle: Bundle, monkeypatch: pytest.MonkeyPatch, wishes: dict
) -> None:
    engine = load_engine(METHODS, tiny_bundle, max_context=512, kv_slots=512 * 25)
    end = {TOKENIZER.encode(c, add_special_tokens=False)[0]: 6.0 for c in '>}],"'}

    async def answers() -> list:
        return await asyncio.gather(
            *(
                decode(
                    engine, method, PROMPT, grammar=grammar, logit_bias=end, max_tokens=99, **wishes
                )
                for method in METHODS
                for grammar in (JSON, DATE, LARK)
            )
        )

    jumped = await answers()
    monkeypatch.setattr(jump_forward, "MOST", 0)
    plain = await answers()
    assert [one.text for one in jumped] == [one.text for one in plain]
    assert [one.tokens for one in jumped] == [one.tokens for one in plain]
    naive, plainly = jumped[0].stats, plain[0].stats
    assert naive.target_steps < plainly.target_steps
    assert naive.by_drafter["grammar"].accepted_tokens == naive.accepted_tokens > 0
    assert plainly.drafted_tokens == 0
