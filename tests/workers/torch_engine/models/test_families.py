"""Every family's forward against transformers, alone, in trees and through the engine."""

import json
import random
from pathlib import Path

import pytest
import torch
from decoding import hugging_face
from spoiling import config
from transformers import PretrainedConfig, PreTrainedModel
from zoo import OURS, VOCAB, WINDOW, random_model
from zoo import save_bundle as save

from workers.bundle import Bundle
from workers.torch_engine.models import families
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.torch_engine.models.kv_pool import KvPool
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import FINAL, Llama
from workers.torch_engine.models.model import load_model

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=OURS)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    return save(folder, random_model(name), random_model(name, seed=1))


@pytest.fixture(scope="module")
def theirs(bundle: Bundle) -> PreTrainedModel:
    return hugging_face(bundle.part("target"))


@pytest.fixture(scope="module")
def ours(bundle: Bundle) -> Llama:
    model = load_model(bundle.part("target"), torch.float32, CPU)
    assert isinstance(model, Llama)
    return model


def read(model: Llama, pool: KvPool, *spans: Span) -> torch.Tensor:
    with torch.inference_mode():
        return model.forward(model.lay_out(spans, pool), pool)[0]


def wanted(model: PreTrainedModel, tokens: list[int], last: int = 1) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0, -last:]


def same(logits: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def text(count: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(VOCAB) for _ in range(count)]


def test_prompt_and_hidden_states(ours: Llama, theirs: PreTrainedModel) -> None:
    tokens = text(3 * WINDOW, 1)
    pool = ours.make_pool(1, 32)
    with torch.inference_mode():
        layout = ours.lay_out([Span(pool.acquire(), tokens)], pool)
        logits, hidden = ours.forward(layout, pool, (0, 2, FINAL))
        expected = theirs(torch.tensor([tokens]), output_hidden_states=True)
    same(logits, expected.logits[0])
    for index, states in hidden.items():
        same(states, expected.hidden_states[index][0])


def test_rows_of_the_lm_head(ours: Llama, theirs: PreTrainedModel) -> None:
    """As the checkpoint has them, whether the head is tied to the embedding or laid out anew."""
    ids = torch.tensor([3, 0, VOCAB - 1])
    expected = theirs.get_output_embeddings().weight[ids].detach()
    assert torch.equal(ours.lm_head_rows(ids), expected)


def test_steps_chains_and_trees(ours: Llama, theirs: PreTrainedModel) -> None:
    """Two sequences of different lengths, one within and one beyond the window."""
    short, long = text(3, 2), text(2 * WINDOW + 3, 3)
    pool = ours.make_pool(2, 48)
    first, second = pool.acquire(), pool.acquire()
    same(read(ours, pool, Span(first, short))[-1:], wanted(theirs, short))
    read(ours, pool, Span(second, long[:9]))
    first.length, second.length = len(short), 9
    for token in long[9:-1]:
        second.length += len(read(ours, pool, Span(second, [token])))
    same(read(ours, pool, Span(second, long[-1:])), wanted(theirs, long))
    second.length = len(long)
    chain, nodes = text(12, 4), text(7, 5)
    parents = [-1, -1, 1, 1, 3, 0, 4]
    logits = read(ours, pool, Span(first, chain), Span(second, nodes, parents))
    same(logits[:12], wanted(theirs, short + chain, 12))
    for leaf, path in ((2, [1, 2]), (5, [0, 5]), (6, [1, 3, 4, 6])):
        said = [nodes[node] for node in path]
        same(logits[12 + leaf][None], wanted(theirs, long + said))
    pool.commit(first, range(12))
    pool.commit(second, [1, 3, 4, 6])
    logits = read(ours, pool, Span(first, [7]), Span(second, [8]))
    same(logits[:1], wanted(theirs, [*short, *chain, 7]))
    same(logits[1:], wanted(theirs, [*long, *said, 8]))


def test_bfloat16_stays_near_float32(bundle: Bundle, theirs: PreTrainedModel) -> None:
    model = load_model(bundle.part("target"), torch.bfloat16, CPU)
    assert isinstance(model, Llama)
    tokens = text(12, 8)
    pool = model.make_pool(1, 16)
    logits = read(model, pool, Span(pool.acquire(), tokens))
    expected = wanted(theirs, tokens, 12)
    assert float((logits - expected).abs().mean()) < 0.1 * float(expected.std())


OLD_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("llama", {"rope_theta": 10000.0, "rope_scaling": None}),
        ("llama-llama3", {"rope_theta": 10000.0, "rope_scaling": OLD_LLAMA3}),
        ("llama-linear", {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4}}),
        (
            "gemma3",
            {
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
    ],
)
def test_older_configs_read_alike(tmp_path: Path, name: str, old: dict) -> None:
    OURS[name].save_pretrained(tmp_path)
    now = read_shape(tmp_path)
    file = tmp_path / "config.json"
    body = json.loads(file.read_text())
    del body["rope_parameters"]
    file.write_text(json.dumps(body | old))
    assert read_shape(tmp_path) == now


@pytest.mark.parametrize(
    "change", [{"head_dim": None}, {"hidden_size": 0}, {"model_type": "x"}, {"rope_theta": 1e6}]
)
def test_transformers_reads_only_configs_that_leave_something_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict
) -> None:
    OURS["llama"].save_pretrained(tmp_path)
    expected = read_shape(tmp_path)
    read: list[Path] = []

    def read_config(folder: Path) -> PretrainedConfig:
        read.append(folder)
        return OURS["llama"]

    monkeypatch.setattr(families, "read_config", read_config)
    assert read_shape(tmp_path) == expected
    assert not read
    config(**change)(tmp_path)
    assert read_shape(tmp_path) == expected
    assert read == [tmp_path]


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "short_factor": [1.0] * 6,
    "long_factor": [2.0] * 6,
    "original_max_position_embeddings": 32,
}


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("llama", {"rope_parameters": LONGROPE}, "rope_type is 'longrope'"),
        ("qwen2", {"layer_types": ["full_attention"] * 2 + ["chunked_attention"]}, "chunked"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.5}},
            "partial_rotary_factor",
        ),
    ],
)
def test_other_features_are_not_covered(tmp_path: Path, name: str, change: dict, said: str) -> None:
    OURS[name].save_pretrained(tmp_path)
    config(**change)(tmp_path)
    with pytest.raises(NotCoveredError, match=said):
        read_shape(tmp_path)


def test_dynamic_rotary_ends_at_its_trained_length(tmp_path: Path) -> None:
    OURS["llama-dynamic"].save_pretrained(tmp_path)
    assert read_shape(tmp_path).max_positions == 512
    OURS["llama"].save_pretrained(tmp_path)
    assert read_shape(tmp_path).max_positions is None
