"""Texts that an ingress has embedded before."""

import numpy as np
import pytest
from asking import prompt

from deployments.request import answer as answer_module
from deployments.request.answer import remembered


@pytest.fixture
def embedded(monkeypatch):
    """Texts in the order in which they are embedded; two vectors are kept."""
    monkeypatch.setattr(answer_module, "EMBEDDED_TEXTS", 2)
    return []


@pytest.fixture
def embed(embedded):
    def fresh(text):
        embedded.append(text)
        return np.full((1, 3), len(embedded), dtype=np.float32)

    return remembered(fresh)


def test_a_text_that_comes_again_has_the_same_vector(embed, embedded):
    first = embed("", "a")
    assert embed("", "a") is first
    assert embed("", "b") is not first
    embed("", "a")
    embed("", "c")
    embed("", "a")
    assert embedded == ["a", "b", "c"], "the one that was not asked for longest is forgotten"
    embed("", "b")
    assert embedded[-1] == "b"
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 7.0


def test_a_scope_does_not_notice_what_another_has_asked(embed, embedded):
    embed("tenant a", "secret")
    embed("tenant b", "secret")
    assert embedded == ["secret", "secret"]


async def test_prompts_are_routed_by_the_vectors_kept(ingress, encoder):
    text = "Write a Python function that reverses a list, and one that sorts it."
    asked = prompt(text=text)
    vectors = [(await ingress.answerer.route(asked))[1] for _ in range(2)]
    assert vectors[0] is vectors[1]
    np.testing.assert_array_equal(vectors[0], encoder.embed([text]))
    _, other = await ingress.answerer.route(prompt(text=text, scope="another"))
    assert other is not vectors[0]
