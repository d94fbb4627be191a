"""An ingress whose routing table corrects its cells for the single prompt."""

import numpy as np
import pytest
from asking import answered, prompt, spoken
from served import foretelling

from router import acceptance
from router.table import load_table, save_table

REPEATED = "again and again and again and again and again and again"
SPOKEN = "Write a Python function that reverses a list."


@pytest.fixture
def config(config, tmp_path):
    """n-gram is foretold to accept far more of a text that repeats itself."""
    table = foretelling(load_table(config.router.routing), "ngram", "repeated", 4.0)
    save_table(table, tmp_path / "routing")
    router = config.router.model_copy(update={"routing": tmp_path / "routing"})
    return config.model_copy(update={"router": router})


async def test_what_is_foretold_of_a_prompt_moves_and_explains_it(ingress):
    for text, method in ((SPOKEN, "draft_verify"), (REPEATED, "ngram")):
        response = await ingress.http.post("/v1/routing/explain", json={"prompt": text})
        body = response.json()
        assert (body["method"], body["reason"]) == (method, "preferred")
        assert body["deviation"]["naive"] == 0.0
        assert (body["deviation"]["ngram"] > 0.5) == (method == "ngram")
    shown = await ingress.http.get("/v1/routing")
    assert shown.json()["predictor"] == "regression"


async def test_the_answer_is_learned_of_at_its_deviation(ingress):
    answer = await answered(ingress, prompt(text=REPEATED))
    await spoken(answer)
    assert answer.method == "ngram"
    await ingress.link.exchange()
    table = ingress.link.table
    m, k = table.methods.index("ngram"), answer.decision.cluster
    assert table.live.steps[k, m] == answer.stats.target_steps - 1
    said = answer.decision.predicted_acceptance["ngram"] - table.regression_mean[k, m]
    profiled = acceptance.profiled(table)[k, m, 0]
    seen = np.log((answer.stats.output_tokens - 1) / (answer.stats.target_steps - 1))
    expected = acceptance.positive_part(np.log(profiled) + said, acceptance.NOISE)
    assert np.sign(table.live.gain[k, m, 0]) == np.sign(seen - expected)
