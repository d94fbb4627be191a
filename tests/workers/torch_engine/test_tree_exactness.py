"""Trees of any shape, beside each other and beside chains, say what Hugging Face says."""

from pathlib import Path
from typing import Any

import pytest
from conftest_bundle import byte_tokenizer, make_bundle
from decoding import assert_same, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig
from test_exactness import prompts
from test_trees import shapes

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.torch_engine.trees.shape import RankPath, format_path

VOCAB = 7
TOKENS = 30
ASKED = prompts(VOCAB, 5, seed=4)


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A small vocabulary, so that every rank is accepted now and then."""
    folder: Path = tmp_path_factory.mktemp("bundle") / "seven"
    return make_bundle(folder, tokenizer=byte_tokenizer(), vocab=VOCAB, kv_heads=2, noise=0.3)


@pytest.fixture(scope="module")
def greedy(seven: Bundle) -> list[list[int]]:
    """Hugging Face's answers."""
    return [reference(seven, prompt, TOKENS) for prompt in ASKED]


def method(name: str, tree: str, verifier: str, levels: int, **wishes: Any) -> MethodSpec:
    return MethodSpec(
        name=name,
        drafter="draft_model",
        tree=tree,
        verifier=verifier,
        lossless=True,
        source="test",
        settings={"tree": wishes, "stop": {"gamma": levels}},
    )


@settings(max_examples=10, deadline=None)
@given(shapes(), st.integers(1, 4), st.integers(0, 8), st.integers(1, 5))
def test_shapes(
    seven: Bundle,
    greedy: list[list[int]],
    shape: list[RankPath],
    k: int,
    more: int,
    levels: int,
) -> None:
    """Five sequences in one batch; those that end leave their rows to others."""
    paths = " ".join(map(format_path, shape))
    methods = [
        method("fixed_shape", "static", "multi_step", levels, paths=paths, sample=True),
        method("dynamic", "eagle2", "one_hot", levels, k=k, nodes=k + more),
        method("typically", "static", "typical", levels, paths=paths),
    ]
    rig = Rig(seven, [*methods, "draft_verify", "naive"])
    names = ["fixed_shape", "dynamic", "draft_verify", "typically", "naive"]
    counts = [TOKENS - 4 * index for index in range(len(names))]
    running = [
        rig.submit(name, prompt, max_tokens=count)
        for name, prompt, count in zip(names, ASKED, counts, strict=True)
    ]
    answers = rig.finish(*running)
    rig.close()
    for prompt, answer, expected, count in zip(ASKED, answers, greedy, counts, strict=True):
        assert_same(seven, prompt, answer.tokens, expected[:count])


@pytest.mark.parametrize("verifier", ["rejection", "fuzzy"])
def test_verifiers_of_chains_refuse_trees(seven: Bundle, verifier: str) -> None:
    odd = method("odd", "static", verifier, 2, widths=(2, 2))
    with pytest.raises(ValueError, match=f"'odd': verifier '{verifier}' takes chains only"):
        Rig(seven, [odd])
