"""Tokenizers of GGUF files: how they split text, which tokens begin and end it."""

import json

import pytest
from gguf_writer import given, write_gguf

from workers.bundle import load_bundle
from workers.end_tokens import end_tokens

TEXT = "In 2024 we'RE 1,234.5 <ok>  good\n\nbye"
SPLITS = {
    "gpt-2": "In| 2024| we|'|RE| 1|,|234|.|5| <|ok|>| | good|\n|\n|bye",
    "smollm": "In| |2|0|2|4| we|'|RE| |1|,|2|3|4|.|5| <|ok|>| | good|\n|\n|bye",
    "llama-bpe": "In| |202|4| we|'RE| |1|,|234|.|5| <|ok|>| | good|\n\n|bye",
    "qwen2": "In| |2|0|2|4| we|'RE| |1|,|2|3|4|.|5| <|ok|>| | good|\n\n|bye",
    "default": "In| |202|4| we|'|RE| |1|,|234|.|5| |<|ok|>| | good|\n|\n|bye",
}
"""Pieces of TEXT by tokenizer.ggml.pre."""


def imported(specadapt, folder, model, tokenizer, **given):
    write_gguf(folder / "some.gguf", model, tokenizer, **given)
    specadapt.json("bundle", "import", folder / "some.gguf", "--out", folder / "out")
    return load_bundle(folder / "out")


@pytest.mark.parametrize("pre", SPLITS)
def test_text_is_split_as_the_file_says(specadapt, model, tokenizer, tmp_path, pre):
    bundle = imported(specadapt, tmp_path, model, tokenizer, pre=pre)
    for backend in (bundle.backend_tokenizer(), bundle.tokenizer().backend_tokenizer):
        spans = [span for _, span in backend.pre_tokenizer.pre_tokenize_str(TEXT)]
        assert "|".join(TEXT[start:end] for start, end in spans) == SPLITS[pre]


def test_answers_end_at_every_end_token_of_the_file(specadapt, model, tokenizer, tmp_path):
    change = given({"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 7})
    bundle = imported(specadapt, tmp_path, model, tokenizer, change=change)
    assert end_tokens(bundle) == {tokenizer.eos_token_id, 5, 7}


@pytest.mark.parametrize(
    ("pre", "said", "begins"),
    [("smollm", None, False), ("smollm", True, True), ("llama-bpe", None, True)],
)
def test_a_text_begins_as_the_file_says(specadapt, model, tokenizer, tmp_path, pre, said, begins):
    change = given({"tokenizer.ggml.add_bos_token": said})
    bundle = imported(specadapt, tmp_path, model, tokenizer, pre=pre, change=change)
    for ids in (bundle.tokenizer()("a").input_ids, bundle.backend_tokenizer().encode("a").ids):
        assert (ids[0] == tokenizer.bos_token_id) == begins
        assert len(ids) == 1 + begins


def test_words_that_are_tokens_need_no_merges(specadapt, model, tokenizer, tmp_path):
    """Llama 3 has tokens that no merges lead to."""
    change = given({"tokenizer.ggml.merges": ["1 2"]})
    for pre, pieces in (("llama-bpe", ["Ġa"]), ("gpt-2", ["Ġ", "a"])):
        folder = tmp_path / pre
        folder.mkdir()
        bundle = imported(specadapt, folder, model, tokenizer, pre=pre, change=change)
        assert bundle.backend_tokenizer().encode(" a", add_special_tokens=False).tokens == pieces


def test_special_tokens_outside_the_byte_alphabet_stay_whole(specadapt, model, tokenizer, tmp_path):
    """DeepSeek's are written with such characters."""
    name = "<\uff5cUser\uff5c>"

    def change(fields, _):
        fields["tokenizer.ggml.tokens"][-1] = name

    bundle = imported(specadapt, tmp_path, model, tokenizer, change=change)
    assert bundle.tokenizer().encode(f"a{name}b", add_special_tokens=False)[1] == len(tokenizer) - 1


def sentencepiece(prefix=None):
    """A file's fields made those of a small SentencePiece tokenizer, of as many tokens."""

    def change(fields, _):
        count = len(fields["tokenizer.ggml.tokens"])
        special = ["<unk>", "<s>", "</s>"]
        tokens = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a"]
        tokens += [*(f"<unused{i}>" for i in range(count - len(tokens) - 1)), "\u2581a"]
        kinds = [2, 3, 3, *[6] * 256, *[1] * 2, *[5] * (count - 262), 1]
        fields |= {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.scores": [float(-i) for i in range(count)],
            "tokenizer.ggml.merges": None,
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
            "tokenizer.ggml.add_space_prefix": prefix,
        }

    return change


@pytest.mark.parametrize(
    ("prefix", "tokens"),
    [(None, ["\u2581a", "<0xC3>", "<0xA9>"]), (False, ["a", "<0xC3>", "<0xA9>"])],
)
def test_a_sentencepiece_tokenizer_is_the_files(
    specadapt, model, tokenizer, tmp_path, prefix, tokens
):
    change = sentencepiece(prefix)
    bundle = imported(specadapt, tmp_path, model, tokenizer, change=change)
    for ids in (
        bundle.tokenizer()("a\u00e9").input_ids,
        bundle.backend_tokenizer().encode("a\u00e9").ids,
    ):
        assert bundle.tokenizer().convert_ids_to_tokens(ids) == ["<s>", *tokens]
    assert bundle.tokenizer().decode(ids, skip_special_tokens=True) == "a\u00e9"
    config = json.loads((bundle.part("target") / "generation_config.json").read_text())
    assert config["eos_token_id"] == 2


@pytest.mark.parametrize(
    ("name", "value"), [("scores", [0.0]), ("add_space_prefix", True), ("model", "t5")]
)
def test_other_sentencepiece_fields_are_refused(specadapt, model, tokenizer, tmp_path, name, value):
    def change(fields, tensors):
        if name != "add_space_prefix":
            sentencepiece()(fields, tensors)
        fields[f"tokenizer.ggml.{name}"] = value

    write_gguf(tmp_path / "some.gguf", model, tokenizer, change=change)
    line = specadapt.refusal("bundle", "import", tmp_path / "some.gguf", "--out", tmp_path / "out")
    assert f"tokenizer.ggml.{name}" in line
