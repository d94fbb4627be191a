"""A tiny model and its byte-level tokenizer, to be written in other people's formats."""

import shutil

import pytest
import torch
from conftest_bundle import byte_tokenizer, random_llama
from gguf_writer import write_gguf


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer(("Ġ", "a"), ("1", "2"))


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    return random_llama(vocab=len(tokenizer), eos=tokenizer.eos_token_id, kv_heads=2)


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory, model, tokenizer):
    file = tmp_path_factory.mktemp("gguf") / "Tiny-Model.Q8_0.gguf"
    write_gguf(file, model, tokenizer)
    return file


@pytest.fixture
def folder(tiny_bundle, tmp_path):
    """A download of the tiny model, in one folder."""
    source = tmp_path / "Some Model"
    shutil.copytree(tiny_bundle.part("target"), source)
    shutil.copytree(tiny_bundle.part("tokenizer"), source, dirs_exist_ok=True)
    return source
