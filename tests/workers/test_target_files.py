"""What a target's files say: its sizes, and which tokens end an answer."""

import json

import pytest
from conftest_bundle import byte_tokenizer, make_bundle

from workers.bundle import BundleError
from workers.end_tokens import TURN_END, end_tokens
from workers.target_sizes import TargetSizes, target_sizes


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({"vocab_size": 300, "max_position_embeddings": 64}, TargetSizes(300, 64)),
        ({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64}, TargetSizes(300, 64)),
        ({"text_config": {"vocab_size": 300, "max_position_embeddings": 64}}, TargetSizes(300, 64)),
        ({"model_type": "mamba", "vocab_size": 300}, TargetSizes(300, None)),
    ],
)
def test_sizes_are_found_under_the_names_that_families_use(tmp_path, config, sizes):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert target_sizes(tmp_path) == sizes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_position_embeddings": 0}, "max_position_embeddings is 0"),
        ({"max_position_embeddings": "many"}, "max_position_embeddings is 'many'"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"text_config": []}, "config.json"),
    ],
)
def test_sizes_that_are_no_numbers_are_refused(tmp_path, change, said):
    config = {"vocab_size": 300, "max_position_embeddings": 64} | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BundleError, match=said):
        target_sizes(tmp_path)


@pytest.fixture
def bundle(tmp_path):
    return make_bundle(tmp_path, tokenizer=byte_tokenizer())


@pytest.mark.parametrize("named", ["as text", "as a dict", "not at all", "as nothing"])
def test_the_tokenizers_end_token_is_transformers_own(bundle, named):
    file = bundle.part("tokenizer") / "tokenizer_config.json"
    config = json.loads(file.read_text())
    end = config.pop("eos_token")
    written = {
        "as text": {"eos_token": end},
        "as a dict": {"eos_token": {"__type": "AddedToken", "content": end}},
        "not at all": {},
        "as nothing": {"eos_token": None},
    }
    file.write_text(json.dumps(config | written[named]))
    (bundle.part("target") / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    tokenizer = bundle.tokenizer()
    known = {5, 6, tokenizer.eos_token_id, tokenizer.get_vocab().get(TURN_END)}
    assert end_tokens(bundle) == known - {None}
