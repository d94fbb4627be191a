import json

import pytest

from workers.bundle import BundleError
from workers.target_sizes import TargetSizes, target_sizes


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ({"vocab_size": 300, "max_position_embeddings": 64}, TargetSizes(300, 64)),
        ({"model_type": "gpt2", "vocab_size": 300, "n_positions": 64}, TargetSizes(300, 64)),
        (
            {"text_config": {"vocab_size": 300, "max_position_embeddings": 64}},
            TargetSizes(300, 64),
        ),
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
