"""Which answers teach routing what: the ingress's parts are the real ones, in simulated time."""

import pytest
from simulated_ingress import Simulated, asked

from schemas import Grammar, SamplingParams


@pytest.mark.parametrize("leaves", [None, 0.3])
@pytest.mark.parametrize(
    "fields", [{"max_draft_tokens": 0}, {"max_draft_tokens": 1}, {"predicted_token_ids": (1, 2)}]
)
def test_answers_with_drafts_of_their_own_teach_others_nothing(fitted, fields, leaves):
    """After two answers without drafts, everybody's prompts left the best method."""
    service = Simulated(fitted)
    asked(service, 20, accepted=0.4, leaves=leaves, **fields)
    assert asked(service) == [("draft", "whole")]
    assert service.state.table.live.answers[0] == pytest.approx(1.0)


def test_answers_with_drafts_of_their_own_are_no_trials(fitted):
    service = Simulated(fitted)
    asked(service, 20, max_draft_tokens=1)
    budget = service.answerer._trials.budget
    assert (budget.units, budget._took, budget._predicted) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("ends", "counted"), [({}, 1.0), ({"ignore_eos": True}, 0.0), ({"min_tokens": 61}, 0.0)]
)
def test_only_answers_that_may_end_teach_how_long_answers_are(fitted, ends, counted):
    service = Simulated(fitted)
    asked(service, sampling=SamplingParams(max_tokens=128, **ends))
    live = service.state.table.live
    assert live.answers[0] == counted
    assert live.tokens[0].sum() > 0.0


@pytest.mark.parametrize("leaves", [None, 0.3])
def test_answers_with_a_grammar_teach_step_times_and_no_acceptance(fitted, leaves):
    sampling = SamplingParams(max_tokens=128, grammar=Grammar(kind="json_object"))
    service = Simulated(fitted)
    asked(service, 20, accepted=3.0, leaves=leaves, sampling=sampling)
    live, budget = service.state.table.live, service.answerer._trials.budget
    assert live.tokens.sum() == 0.0
    assert live.step_weight.sum() > 0.0
    assert (budget.units, budget._took) == (0.0, 0.0)


@pytest.mark.parametrize("missing", [{}, {"problem": "superseded"}, {"age_seconds": 31.0}])
def test_nothing_is_tried_while_nothing_is_learned(fitted, missing):
    """A method without evidence is a guess, for which the budget gets an advance."""
    steps = fitted.acceptance_steps.copy()
    tokens = fitted.acceptance_tokens.copy()
    for counts in (steps, tokens):
        counts[:, fitted.methods.index("ngram")] = 0.0
    unknown = {"acceptance_steps": steps, "acceptance_tokens": tokens}
    service = Simulated(fitted.model_copy(update=unknown))
    for name, value in missing.items():
        setattr(service.state, name, value)
    methods = [method for method, _ in asked(service, 10)]
    assert ("ngram" in methods) == (not missing)
    assert service.answerer._trials.budget.started == (not missing)
