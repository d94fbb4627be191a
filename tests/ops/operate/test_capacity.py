"""The context that `serve` takes, and what `doctor` says of it."""

from types import SimpleNamespace

import pytest

from ops.common.boundary import InputError
from ops.common.settings import Setup
from ops.operate.capacity import KV_SHARE, weight_bytes, with_room_for_contexts
from schemas import EngineConfig
from workers.methods import get_method
from workers.target_sizes import kv_numbers, target_sizes


@pytest.fixture
def fitted(tiny_bundle, monkeypatch):
    """The engine of a machine with memory for so many tokens of one replica."""
    target = tiny_bundle.part("target")
    each = 4 * kv_numbers(target)

    def fit(tokens, replicas=1, **engine):
        room = tokens * each / KV_SHARE + weight_bytes(target, "auto")
        free = SimpleNamespace(available=replicas * room)
        monkeypatch.setattr("psutil.virtual_memory", lambda: free)
        config = EngineConfig(device="cpu", **engine)
        methods = (get_method("naive"),) * replicas
        made = with_room_for_contexts(Setup(tiny_bundle.path, methods, config))
        return made.max_context, made.kv_slots

    fit.own = target_sizes(target).positions
    return fit


def test_a_context_is_the_models_own_where_the_memory_allows(fitted):
    own = fitted.own
    assert fitted(100 * own, max_batch=4) == (own, 4 * own)
    assert fitted(100 * own, replicas=3, max_batch=4) == (own, 4 * own)
    assert fitted(2 * own, max_batch=4) == (own, 2 * own)
    assert fitted(own // 2, max_batch=4) == (own // 2, own // 2)


def test_what_the_configuration_says_stays(fitted):
    assert fitted(10**6, kv_slots=512) == (EngineConfig().max_context, 512)
    assert fitted(10**6, kv_slots=512, max_context=64) == (64, 512)
    assert fitted(10**6, max_context=64, max_batch=2) == (64, 256)


def test_a_context_that_has_no_room_is_refused(fitted):
    with pytest.raises(
        InputError, match=r"max_context \(--max-model-len\): the model reads .* at most"
    ):
        fitted(10**6, max_context=fitted.own + 1)
    with pytest.raises(
        InputError, match=r"max_context \(--max-model-len\): 64 tokens take 0.0 GB .* room for 63"
    ):
        fitted(63, max_context=64)


def test_weights_that_do_not_fit_are_refused_with_their_gigabytes(fitted):
    with pytest.raises(InputError, match=r"weights take at least .* GB of memory in 2 replicas"):
        fitted(-1, replicas=2)


def test_doctor_describes_the_machine_without_a_model(specadapt, tmp_path):
    found = specadapt.json("doctor", tmp_path)
    assert found["torch"]
    assert "neither a GGUF file nor a folder" in found["`serve` would refuse"]


def test_doctor_says_what_would_be_served(specadapt, tiny_bundle):
    found = specadapt.json("doctor", tiny_bundle.path)
    assert found["bundle"] == str(tiny_bundle.path)
    assert "ngram" in found["methods"]
    assert found["context"].startswith(f"{target_sizes(tiny_bundle.part('target')).positions:,} ")
    assert found["torch"]
    assert found["vLLM's methods"]
