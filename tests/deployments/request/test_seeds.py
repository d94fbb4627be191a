"""A seed's answer is the same whichever method the router chose for it."""

import numpy as np
import pytest
from asking import HELLO
from served import service_config

from deployments.api.prompt_reader import PromptReader
from deployments.artifacts import served_encoder
from workers.loader import load_engine

METHODS = (
    *("naive", "draft_verify", "ngram", "suffix", "adaptive", "medusa", "eagle", "eagle2"),
    *("eagle3", "specinfer"),
)
ASKED = HELLO | {"max_tokens": 32, "seed": 11, "ignore_eos": True}


@pytest.fixture(scope="module")
def base_config(tiny_bundle, tmp_path_factory):
    """With every lossless method of our own engine."""
    return service_config(tmp_path_factory.mktemp("service"), tiny_bundle, METHODS)


@pytest.fixture(scope="module")
def engine(base_config, tiny_bundle):
    made = load_engine(list(METHODS), tiny_bundle, base_config.engine, "replica-1")
    yield made
    made.close()


@pytest.fixture(scope="module")
def encoder(base_config):
    made = served_encoder(base_config)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def reader(base_config, tiny_bundle):
    return PromptReader(tiny_bundle, METHODS, base_config.engine)


def favouring(table, method):
    """The table as it would be, were this method by far the best everywhere."""
    rates = np.where(np.asarray(table.methods) == method, 9.0, 1.0)
    tokens = table.acceptance_steps * rates[None, :, None]
    return table.model_copy(update={"acceptance_tokens": tokens, "version": table.version + 1})


@pytest.mark.parametrize("temperature", [0.0, 0.8, 1.3])
async def test_whoever_is_chosen_says_the_same(ingress, temperature):
    said, chosen = {}, []
    for method in METHODS:
        ingress.link.table = favouring(ingress.link.table, method)
        asked = ASKED | {"temperature": temperature}
        response = await ingress.http.post("/v1/chat/completions", json=asked)
        assert response.status_code == 200, response.text
        chosen.append(response.headers["x-specadapt-method"])
        assert response.headers["x-specadapt-reason"] == "favourite"
        said[method] = response.json()["choices"][0]["message"]["content"]
    assert chosen == list(METHODS)
    assert set(said.values()) == {said["naive"]}


async def test_without_a_seed_two_answers_differ(ingress):
    asked = {k: v for k, v in ASKED.items() if k != "seed"} | {"temperature": 1.3}
    texts = [
        (await ingress.http.post("/v1/chat/completions", json=asked)).json()["choices"][0]
        for _ in range(2)
    ]
    assert texts[0]["message"]["content"] != texts[1]["message"]["content"]
