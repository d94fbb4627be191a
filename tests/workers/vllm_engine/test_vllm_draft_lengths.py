"""How many tokens vLLM is told to draft, at which batch size."""

import pytest

from schemas import MethodSpec
from workers.methods import get_method
from workers.vllm_engine.batch_schedule import batch_ranges, most_draft_tokens


def scheduled(name: str, *gammas: int, **changes: object) -> MethodSpec:
    spec = get_method(name)
    stop = {"batches": (1, 5, 17)[: len(gammas)], "gammas": gammas, **changes}
    settings = {**spec.settings, "stop": stop}
    return MethodSpec.model_validate(
        {**spec.model_dump(), "stop": "batch_schedule", "settings": settings}
    )


@pytest.mark.parametrize("name", ["vllm_draft", "vllm_ngram", "vllm_eagle", "vllm_eagle3"])
def test_a_schedule(name: str) -> None:
    spec = scheduled(name, 4, 2, 0)
    assert most_draft_tokens(spec) == 4
    assert batch_ranges(spec) == [(1, 4, 4), (5, 16, 2), (17, 17, 0)]


def test_the_same_number_throughout_needs_no_schedule() -> None:
    assert most_draft_tokens(get_method("vllm_ngram")) == 8
    assert batch_ranges(get_method("vllm_ngram")) is None
    assert batch_ranges(scheduled("vllm_suffix", 3, 3)) is None
    assert most_draft_tokens(scheduled("vllm_suffix", 3, 3)) == 3


@pytest.mark.parametrize("name", ["vllm_suffix", "vllm_medusa"])
def test_drafters_that_follow_none(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: vLLM's .* the same number of tokens"):
        batch_ranges(scheduled(name, 4, 2))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (scheduled("vllm_ngram", 0, 0), "vllm_ngram: vLLM drafts at least one token"),
        (scheduled("vllm_ngram", 4, 2, batches=4), "batches must be a list, not 4"),
        (scheduled("vllm_ngram", 4, 2, batches=(2, 4)), "batches must begin with 1"),
    ],
)
def test_what_is_no_schedule(spec: MethodSpec, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        most_draft_tokens(spec)
