"""Which tokens end an answer, read without transformers where the files say it."""

import json

import pytest
from conftest_bundle import byte_tokenizer, make_bundle

from workers.end_tokens import TURN_END, end_tokens


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
