"""What a regression says of single prompts, and that cells say and learn what is left."""

import numpy as np
import pytest
from corrected_world import SLOPE, TOKENS, made_profile, made_tables
from hypothesis import given
from hypothesis import strategies as st
from routing_world import ACCEPTANCE, CENTROIDS, ENCODER, METHODS, make_profile, observe

from router import acceptance, prompt
from router.constraints import Constraints
from router.fit.assign import build_table
from router.fit.evaluate import evaluate
from router.fit.regression import corrected
from router.fit.unfitted import promoted
from router.learner import Learner
from router.policy import choose
from router.prompt import NAMES, READ_CHARACTERS, Features, features_of
from router.table import RoutingTableError, load_table, restrict, save_table
from schemas import Decision, Observation, RouterConfig, RoutingTable

COPIES = "the cat sat and the cat sat and the cat sat and"
SPEAKS = "nobody has said any of these words before now"
NGRAM = METHODS.index("ngram")
PLAIN, TABLE = made_tables()


def said_of(table: RoutingTable, cluster: int, third: float) -> dict[str, float]:
    vector = CENTROIDS[cluster].astype(np.float32)[None].copy()
    vector[0, 2] = third
    [said] = prompt.predictions(table, vector, ["fit prompt 1"], [20.0])
    return said


def decision_of(table: RoutingTable, cluster: int, said: dict[str, float]) -> Decision:
    constraints = Constraints(healthy=frozenset(METHODS), explore=False)
    return choose(table, Features(20, 400, 0.0, said, cluster), (), constraints, RouterConfig())


def answer_of(
    table: RoutingTable, number: int, rate: float, said: dict[str, float], tokens: int = TOKENS
) -> Observation:
    """An n-gram answer to a prompt of the second cluster, with so many tokens a decode step."""
    steps = {"output_tokens": tokens, "target_steps": 1 + round((tokens - 1) / rate)}
    made = observe(table, str(number), "ngram", 1, **steps)
    return made.model_copy(update={"predicted_acceptance": said.get("ngram")})


def test_features_say_what_they_are_named_for() -> None:
    said = dict(zip(NAMES, features_of(COPIES, 20), strict=True))
    assert said["repeated"] > 0.5
    assert said["log_tokens"] == pytest.approx(np.log(20))
    assert dict(zip(NAMES, features_of(SPEAKS, 1), strict=True))["repeated"] == 0.0
    assert features_of("def f():\n    pass", 1)[NAMES.index("code")] == 1.0
    assert features_of("Why is the sky blue?", 1)[NAMES.index("question")] == 1.0
    assert len(features_of("", 0)) == len(NAMES)
    long = "tell me more and more and " * READ_CHARACTERS
    assert features_of(long, 9) == features_of(long[:READ_CHARACTERS], 9)


def test_deviations_are_found_and_cells_say_the_rest():
    for cluster in (0, 1):
        for third in (-0.4, 0.0, 0.4):
            said = said_of(TABLE, cluster, third)
            expected = acceptance.expected(TABLE, cluster, 0, said)
            right = ACCEPTANCE["ngram"][cluster] * np.exp(SLOPE * third)
            if right > 1.3:  # below, answers are not slower than plain decoding
                assert expected[NGRAM] == pytest.approx(right, rel=0.1)
            assert expected[0] == 1.0
            assert expected[1] == pytest.approx(2.5, rel=0.03)


def test_what_nothing_explains_is_not_corrected() -> None:
    table, other = made_tables(slope=0.0)
    said = said_of(other, 1, 0.4)
    found = acceptance.expected(other, 1, 0, said)
    np.testing.assert_allclose(found, acceptance.expected(table, 1, 0), rtol=0.02)


def test_nobody_is_foretold_farther_out_than_those_learned_from():
    far, edge = (said_of(TABLE, 1, third)["ngram"] for third in (50.0, 0.5))
    assert far == TABLE.regression_range[NGRAM, 1]
    assert far == pytest.approx(edge, abs=0.15)


def test_the_foretold_move_to_the_method_that_suits_them():
    usual = decision_of(PLAIN, 1, {}).method
    assert usual == "ngram"
    methods = {third: decision_of(TABLE, 1, said_of(TABLE, 1, third)) for third in (-0.5, 0.5)}
    assert methods[0.5].method == "ngram"
    # 5 tokens a step of 11 ms against 2.5 of 15 ms: not even the worst prompt is sooner elsewhere
    assert methods[-0.5].method == "ngram"
    seconds = [methods[third].predicted_seconds["ngram"] for third in (-0.5, 0.5)]
    assert seconds[0] > seconds[1]
    slow = TABLE.step_seconds.copy()
    slow[NGRAM] *= 2.5
    slower = TABLE.model_copy(update={"step_seconds": slow})
    chosen = [decision_of(slower, 1, said_of(slower, 1, third)) for third in (-0.5, 0.5)]
    assert [one.method for one in chosen] == ["draft", "ngram"]
    assert {one.reason for one in chosen} == {"preferred"}


@given(st.lists(st.floats(-0.5, 0.5), min_size=5, max_size=40), st.floats(3.0, 8.0))
def test_of_answers_with_deviations_the_cell_is_learned(thirds: list[float], rate: float) -> None:
    learner = Learner(TABLE)
    mean = TABLE.regression_mean[1, NGRAM]
    said = [said_of(TABLE, 1, third) for third in thirds]
    learner.observe(
        answer_of(TABLE, i, rate * np.exp(own["ngram"] - mean), own, 4801)
        for i, own in enumerate(said)
    )
    cell = acceptance.acceptance(learner.table)[1, NGRAM, 0]
    before = acceptance.acceptance(TABLE)[1, NGRAM, 0]
    assert abs(np.log(cell / rate)) <= abs(np.log(before / rate)) + 0.05


def test_an_answer_that_comes_as_expected_teaches_its_cell_nothing() -> None:
    """Of a prompt that is foretold less than a token a step one a step is expected, and comes."""
    said = {"ngram": float(TABLE.regression_mean[0, NGRAM]) - 5.0}
    assert acceptance.expected(TABLE, 0, 0, said)[NGRAM] == 1.0
    learner = Learner(TABLE)
    for i in range(50):
        one = answer_of(TABLE, i, 1.0, said)
        learner.observe([one.model_copy(update={"cluster": 0})])
    cell = acceptance.acceptance(learner.table)[0, NGRAM, 0]
    assert cell == pytest.approx(acceptance.acceptance(TABLE)[0, NGRAM, 0], rel=0.01)


def test_an_answer_of_a_token_is_no_time_to_weigh() -> None:
    free = TABLE.model_copy(update={"prefill_seconds": np.zeros_like(TABLE.prefill_seconds)})
    constraints = Constraints(healthy=frozenset(METHODS), explore=False)
    asked = Features(20, 1, 0.0, said_of(free, 1, 0.3), cluster=1)
    assert choose(free, asked, (), constraints, RouterConfig()).method in METHODS


def test_a_table_with_a_regression_is_judged_by_it() -> None:
    # n-gram is the best of the first cluster's prompts where their vectors say so
    profile, vectors = made_profile("fit", slope=3.0)
    table = build_table(profile, vectors, CENTROIDS, ENCODER)
    held, other = made_profile("held", slope=3.0)
    with_it = evaluate(corrected(table, profile, vectors), held, other)
    without = evaluate(table, held, other)
    assert with_it.routed > 1.05 * without.routed
    assert with_it.routed > 0.97 * with_it.per_prompt_oracle


def test_it_goes_to_the_disk_and_comes_back(tmp_path):
    save_table(TABLE, tmp_path)
    loaded = load_table(tmp_path)
    assert loaded.features == NAMES
    whole = said_of(TABLE, 1, 0.3)
    assert said_of(loaded, 1, 0.3) == whole
    small = restrict(loaded, ("naive", "ngram"))
    assert said_of(small, 1, 0.3) == {"naive": whole["naive"], "ngram": whole["ngram"]}
    save_table(TABLE.model_copy(update={"features": ("other", *NAMES[1:])}), tmp_path)
    with pytest.raises(RoutingTableError, match=r"features are other.*fit again"):
        load_table(tmp_path)


def test_promotion_keeps_it() -> None:
    learner = Learner(TABLE)
    said = said_of(TABLE, 1, 0.4)
    learner.observe(answer_of(TABLE, i, 7.0, said) for i in range(40))
    made = promoted(learner.table)
    there, here = (acceptance.expected(one, 1, 0, said) for one in (made, learner.table))
    np.testing.assert_allclose(there, here, rtol=0.1)
    assert there[NGRAM] == pytest.approx(7.0, rel=0.1)


def test_a_profile_of_one_cluster_foretells_the_other_from_all() -> None:
    profile, vectors = make_profile(per_cluster=20)
    lonely = vectors.copy()
    lonely[:, :2] = CENTROIDS[0][:2]
    table = corrected(build_table(profile, lonely, CENTROIDS, ENCODER), profile, lonely)
    assert np.isfinite(table.regression_mean).all()
    np.testing.assert_allclose(table.regression_mean[1], table.regression_mean[0], atol=0.05)
