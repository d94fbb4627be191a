"""Trees of any shape, in one batch with chains, give Hugging Face's answers."""

from typing import Any

import pytest
from decoding import assert_greedy, method_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig
from test_exactness import prompts
from test_trees import shapes

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.torch_engine.trees.static import RankPath, format_path

TOKENS = 30
ASKED = prompts(7, 5, seed=4)


def method(name: str, tree: str, verifier: str, levels: int, **wishes: Any) -> MethodSpec:
    settings = {"tree": wishes, "stop": {"gamma": levels}}
    return method_of(name, "draft_model", tree, verifier, **settings)


@settings(max_examples=10, deadline=None)
@given(shapes(), st.integers(1, 4), st.integers(0, 8), st.integers(1, 5))
def test_shapes(seven: Bundle, shape: list[RankPath], k: int, more: int, levels: int) -> None:
    """Decode five sequences in one batch; rows move when a sequence ends."""
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
    for prompt, answer, count in zip(ASKED, answers, counts, strict=True):
        assert_greedy(seven, prompt, answer.tokens, count)


@pytest.mark.parametrize("verifier", ["rejection", "fuzzy"])
def test_verifiers_of_chains_refuse_trees(seven: Bundle, verifier: str) -> None:
    odd = method("odd", "static", verifier, 2, widths=(2, 2))
    with pytest.raises(ValueError, match=f"'odd': verifier '{verifier}' takes chains only"):
        Rig(seven, [odd])
