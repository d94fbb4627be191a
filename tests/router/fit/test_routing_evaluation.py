from dataclasses import replace

import pytest
from routing_world import CENTROIDS, ENCODER, make_profile

from router.fit.assign import TableOptions, build_table
from router.fit.evaluate import EvaluationRefusedError, evaluate
from router.fit.profile import ProfileError
from router.table import RoutingTableError
from schemas import RoutingTable


def test_routing_beats_one_method_where_the_best_one_differs(table: RoutingTable) -> None:
    profile, vectors = make_profile("held", per_cluster=12, noise=0.02)
    found = evaluate(table, profile, vectors)
    assert found.prompts == 24
    assert found.best_single == "ngram"
    assert found.harmonic_mean["naive"] == pytest.approx(1.0)
    assert found.shares == {"naive": 0.0, "draft": 0.5, "ngram": 0.5}
    assert found.routed == pytest.approx(found.per_prompt_oracle)
    assert found.routed_over_best_single == pytest.approx(found.routed / found.best_single_speedup)
    low, high = found.routed_over_best_single_ci95
    assert 1.0 < low < found.routed_over_best_single < high
    assert evaluate(table, profile, vectors) == found


def test_one_bit_is_worth_as_much_as_the_text_tells(table: RoutingTable) -> None:
    """The world's edits copy. Their texts say so in the second profile alone."""
    profile, vectors = make_profile("held", per_cluster=12, noise=0.02)
    alike = evaluate(table, profile, vectors)
    assert alike.copy_or_not == pytest.approx(alike.best_single_speedup, rel=0.1)
    told = [
        prompt.model_copy(update={"text": f"Fix this: {prompt.text}"})
        if prompt.domain == "edit"
        else prompt
        for prompt in profile.prompts
    ]
    found = evaluate(table, replace(profile, prompts=tuple(told)), vectors)
    assert found.copy_or_not == pytest.approx(found.per_prompt_oracle)


def test_each_temperature_is_judged_by_itself(table: RoutingTable) -> None:
    """Above temperature 0 n-gram copies nothing, and the table does not know it."""
    profile, vectors = make_profile("held", per_cluster=12)
    warm = [
        row.model_copy(
            update={"temperature": 1.0}
            | (
                {"target_steps": 61, "decode_seconds": 0.66, "seconds": 0.68}
                if row.method == "ngram"
                else {}
            )
        )
        for row in profile.rows
    ]
    both = replace(profile, rows=(*profile.rows, *warm))
    found = evaluate(table, both, vectors).by_temperature
    assert list(found) == ["0", "1"]
    assert [one["prompts"] for one in found.values()] == [24, 24]
    assert found["0"]["routed"] > found["0"]["best_single"]
    assert found["1"]["routed"] < found["1"]["best_single"]
    low, high = (found["1"][f"routed_over_best_single_{end}"] for end in ("low", "high"))
    assert low <= found["1"]["routed_over_best_single"] <= high < 1.0


def test_without_naive_speedups_are_over_vllm_naive() -> None:
    methods = ("vllm_naive", "draft", "ngram")
    table = build_table(*make_profile(methods=methods), CENTROIDS, ENCODER)
    assert table.provenance["baseline"] == "vllm_naive"
    assert table.speedup[:, 0] == pytest.approx(1.0)
    found = evaluate(table, *make_profile("held", methods=methods))
    assert found.baseline == "vllm_naive"
    assert found.harmonic_mean["vllm_naive"] == pytest.approx(1.0)
    # a step of vllm_naive takes half of naive's
    mixed, vectors = make_profile("held", methods=(*methods, "naive"))
    assert mixed.baseline == "naive"
    over_naive = evaluate(table, mixed, vectors)
    assert over_naive.harmonic_mean["vllm_naive"] == pytest.approx((0.02 + 0.6) / (0.02 + 0.3))
    assert over_naive.routed_over_best_single == pytest.approx(found.routed_over_best_single)


def test_a_portfolio_of_one_gains_nothing(table: RoutingTable) -> None:
    profile, vectors = make_profile("held")
    found = evaluate(table, profile, vectors, methods=["naive"])
    assert found.routed_over_best_single == 1.0
    assert found.routed_over_best_single_ci95 == (1.0, 1.0)
    with pytest.raises(RoutingTableError, match="medusa"):
        evaluate(table, profile, vectors, methods=["naive", "medusa"])


@pytest.mark.parametrize("condition", [{"threads": 2}, {"dtype": "bfloat16"}, {"machine": "x"}])
def test_other_conditions_are_refused(table: RoutingTable, condition: dict[str, object]) -> None:
    profile, vectors = make_profile("held")
    under = profile.meta.measured_under.model_copy(update=condition)
    profile = replace(profile, meta=profile.meta.model_copy(update={"measured_under": under}))
    with pytest.raises(EvaluationRefusedError, match=next(iter(condition))):
        evaluate(table, profile, vectors)


def test_prompts_of_the_fit_are_refused(table: RoutingTable) -> None:
    with pytest.raises(EvaluationRefusedError, match="20 of 20 prompts were seen"):
        evaluate(table, *make_profile("fit"))
    fitted, vectors = make_profile("fit")
    clustered = build_table(
        fitted, vectors, CENTROIDS, ENCODER, TableOptions(clustered_prompts=["held  prompt 3"])
    )
    with pytest.raises(EvaluationRefusedError, match="held-3"):
        evaluate(clustered, *make_profile("held"))


def test_other_settings_are_refused(table: RoutingTable) -> None:
    profile, vectors = make_profile("held")
    hashes = {**profile.meta.settings_hashes, "draft": "longer"}
    changed = replace(profile, meta=profile.meta.model_copy(update={"settings_hashes": hashes}))
    with pytest.raises(RoutingTableError, match="draft"):
        evaluate(table, changed, vectors)


def test_short_answers_do_not_count_for_speed(table: RoutingTable) -> None:
    profile, vectors = make_profile("held")
    rows = [
        r.model_copy(update={"output_tokens": 7, "target_steps": 5})
        if r.prompt_id == "held-0" and r.method == "draft"
        else r
        for r in profile.rows
    ]
    assert evaluate(table, replace(profile, rows=tuple(rows)), vectors).prompts == 19
    short = tuple(r.model_copy(update={"output_tokens": 7}) for r in profile.rows)
    with pytest.raises(ProfileError, match="8 tokens"):
        evaluate(table, replace(profile, rows=short), vectors)
