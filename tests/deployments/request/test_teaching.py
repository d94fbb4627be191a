"""Which answers teach routing what: the ingress's parts are the real ones, in simulated time."""

import pytest
from simulated_ingress import Simulated, in_simulated_time

from schemas import Grammar, RoutingTable, SamplingParams


@pytest.mark.parametrize("leaves", [None, 0.3])
@pytest.mark.parametrize(
    "fields", [{"max_draft_tokens": 0}, {"max_draft_tokens": 1}, {"predicted_token_ids": (1, 2)}]
)
def test_answers_with_drafts_of_their_own_teach_others_nothing(
    fitted: RoutingTable, fields: dict[str, object], leaves: float | None
) -> None:
    """After two answers without drafts, everybody's prompts left the best method."""

    async def asked() -> tuple[Simulated, str]:
        service = Simulated(fitted)
        for _ in range(20):
            await service.ask(0, accepted=0.4, leaves=leaves, **fields)
        return service, (await service.ask(0))[0]

    service, method = in_simulated_time(asked())
    assert method == "draft"
    assert service.state.table.live.answers[0] == pytest.approx(1.0)


def test_answers_with_drafts_of_their_own_are_no_trials(fitted: RoutingTable) -> None:
    async def asked() -> Simulated:
        service = Simulated(fitted)
        for _ in range(20):
            await service.ask(0, max_draft_tokens=1)
        return service

    budget = in_simulated_time(asked()).answerer._trials.budget
    assert (budget.units, budget._took, budget._predicted) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("ends", "counted"), [({}, 1.0), ({"ignore_eos": True}, 0.0), ({"min_tokens": 61}, 0.0)]
)
def test_only_answers_that_may_end_teach_how_long_answers_are(
    fitted: RoutingTable, ends: dict[str, object], counted: float
) -> None:
    async def asked() -> Simulated:
        service = Simulated(fitted)
        await service.ask(0, sampling=SamplingParams(max_tokens=128, **ends))
        return service

    live = in_simulated_time(asked()).state.table.live
    assert live.answers[0] == counted
    assert live.tokens[0].sum() > 0.0


@pytest.mark.parametrize("leaves", [None, 0.3])
def test_answers_with_a_grammar_teach_step_times_and_no_acceptance(
    fitted: RoutingTable, leaves: float | None
) -> None:
    sampling = SamplingParams(max_tokens=128, grammar=Grammar(kind="json_object"))

    async def asked() -> Simulated:
        service = Simulated(fitted)
        for _ in range(20):
            await service.ask(0, accepted=3.0, leaves=leaves, sampling=sampling)
        return service

    service = in_simulated_time(asked())
    live, budget = service.state.table.live, service.answerer._trials.budget
    assert live.tokens.sum() == 0.0
    assert live.step_weight.sum() > 0.0
    assert (budget.units, budget._took) == (0.0, 0.0)


@pytest.mark.parametrize("missing", [{}, {"problem": "superseded"}, {"age_seconds": 31.0}])
def test_nothing_is_tried_while_nothing_is_learned(
    fitted: RoutingTable, missing: dict[str, object]
) -> None:
    """A method without evidence is a guess, for which the budget gets an advance."""
    steps = fitted.acceptance_steps.copy()
    tokens = fitted.acceptance_tokens.copy()
    for counts in (steps, tokens):
        counts[:, fitted.methods.index("ngram")] = 0.0
    unknown = {"acceptance_steps": steps, "acceptance_tokens": tokens}

    async def asked() -> tuple[Simulated, list[str]]:
        service = Simulated(fitted.model_copy(update=unknown))
        for name, value in missing.items():
            setattr(service.state, name, value)
        return service, [(await service.ask(0))[0] for _ in range(10)]

    service, methods = in_simulated_time(asked())
    assert ("ngram" in methods) == (not missing)
    assert service.answerer._trials.budget.started == (not missing)
