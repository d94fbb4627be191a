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


@pytest.mark.parametrize(
    ("ends", "counted"), [({}, 1.0), ({"ignore_eos": True}, 0.0), ({"min_tokens": 61}, 0.0)]
)
def test_only_answers_that_may_end_teach_how_long_answers_are(fitted, ends, counted):
    service = Simulated(fitted)
    asked(service, sampling=SamplingParams(max_tokens=128, **ends))
    live = service.state.table.live
    assert live.answers[0] == counted
    assert live.steps[0].sum() > 0.0


@pytest.mark.parametrize("leaves", [None, 0.3])
def test_answers_with_a_grammar_teach_others_little_of_acceptance(fitted, leaves):
    sampling = SamplingParams(max_tokens=128, grammar=Grammar(kind="json_object"))
    service = Simulated(fitted)
    asked(service, 20, accepted=2.0, leaves=leaves, sampling=sampling)
    gain = service.state.table.live.gain[0, fitted.methods.index("draft")]
    assert gain[3] > 0.3
    assert (gain[:3] < 0.6 * gain[3]).all()


@pytest.mark.parametrize("missing", [{}, {"problem": "superseded"}, {"age_seconds": 31.0}])
def test_nothing_is_explored_while_nothing_is_learned(fitted, missing):
    service = Simulated(fitted)
    for name, value in missing.items():
        setattr(service.state, name, value)
    methods = {method for method, _ in asked(service, 50)}
    assert (methods == {*fitted.methods}) == (not missing)
