"""GGUF files that would make another model than they describe: each is refused by what it says."""

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_writer import given, write_gguf
from spoiling import POINTER

MISSING = None
CASES = Path(__file__).parents[3].parent / "shared" / "cases"


SCALING, TOKENS = "llama.rope.scaling.", "tokenizer.ggml."


def fields(prefix="", /, **values):
    """Set fields, with __ for a dot behind a prefix; MISSING removes one."""
    return given({prefix + name.replace("__", "."): value for name, value in values.items()})


def dropped(*names):
    return lambda _, tensors: [tensors.pop(name) for name in names]


def added(name, *shape):
    return lambda _, tensors: tensors.update({name: np.full(shape, 0.1, dtype=np.float32)})


def not_a_number(_, tensors):
    tensors["blk.0.ffn_down.weight"] = np.full((64, 128), np.nan, dtype=np.float32)


def a_token_more(fields, _):
    fields["tokenizer.ggml.tokens"] = [*fields["tokenizer.ggml.tokens"], "<extra>"]
    fields["tokenizer.ggml.token_type"] = [*fields["tokenizer.ggml.token_type"], 1]


def a_token_twice(fields, _):
    fields["tokenizer.ggml.tokens"] = ["!", *fields["tokenizer.ggml.tokens"][1:-1], "!"]


def scaled_frequencies(_, tensors):
    tensors["rope_freqs.weight"] = np.linspace(1.0, 3.0, 8, dtype=np.float32)


REFUSED = {
    "many missing": (
        dropped(*(f"blk.2.{n}.weight" for n in ("attn_q", "attn_k", "attn_v"))),
        "3 tensors are missing",
    ),
    "attention bias": (added("blk.0.attn_q.bias", 64), "blk.0.attn_q.bias"),
    "experts": (fields(llama__expert_count=8), "llama.expert_count is 8"),
    "window": (fields(llama__attention__sliding_window=128), "llama.attention.sliding_window"),
    "logit scale": (fields(llama__logit_scale=0.5), "llama.logit_scale is 0.5"),
    "wrong shape": (added("blk.1.attn_k.weight", 64, 64), "blk.1.attn_k.weight is [64, 64]"),
    "NaN": (not_a_number, "blk.0.ffn_down.weight holds NaN"),
    "no context": (fields(llama__context_length=MISSING), "llama.context_length is missing"),
    "too many layers": (fields(llama__block_count=2_000_000), "llama.block_count is 2000000"),
    "heads by layer": (fields(llama__attention__head_count=[4, 4, 4]), "attention.head_count is"),
    "uneven heads": (fields(llama__attention__head_count_kv=3), "no multiple of head_count_kv"),
    "partial rotary": (fields(llama__rope__dimension_count=8), "llama.rope.dimension_count is 8"),
    "longrope": (
        fields(SCALING, type="longrope", factor=4.0),
        "llama.rope.scaling.factor is 4.0 and its type 'longrope'",
    ),
    "a factor without a type": (fields(SCALING, factor=4.0), "llama.rope.scaling.factor is 4.0"),
    "more of YaRN": (
        fields(SCALING, type="yarn", yarn_log_multiplier=0.1),
        "llama.rope.scaling.yarn_log_multiplier",
    ),
    "an infinite base": (fields(llama__rope__freq_base=float("inf")), "llama.rope.freq_base is"),
    "tokens in words": (fields(TOKENS, tokens="abc"), "tokenizer.ggml.tokens is 'abc'"),
    "an end in words": (fields(TOKENS, eos_token_id="x"), "eos_token_id is 'x'"),
    "epsilon in words": (
        fields(llama__attention__layer_norm_rms_epsilon="small"),
        "llama.attention.layer_norm_rms_epsilon is 'small'",
    ),
    "scaled attention": (
        fields(SCALING, type="linear", factor=4.0, attn_factor=1.2),
        "llama.rope.scaling.attn_factor is 1.2",
    ),
    "frequencies": (scaled_frequencies, "rope_freqs.weight holds factors"),
    "architecture": (fields(general__architecture="falcon"), "general.architecture is 'falcon'"),
    "split": (fields(split__count=3, split__no=0), "split.count is 3 and this is part 1"),
    "adapter": (fields(general__type="adapter"), "general.type is 'adapter'"),
    "tokenizer kind": (fields(TOKENS, model="rwkv"), "tokenizer.ggml.model is 'rwkv'"),
    "pre": (fields(TOKENS, pre="made-up"), "tokenizer.ggml.pre is 'made-up'"),
    "no pre": (fields(TOKENS, pre=MISSING), "tokenizer.ggml.pre is missing"),
    "no merges": (fields(TOKENS, merges=MISSING), "tokenizer.ggml.merges is missing"),
    "bad merges": (fields(TOKENS, merges=["zz zz"]), "tokenizer.ggml describes no"),
    "few types": (fields(TOKENS, token_type=[1, 1, 3]), "tokenizer.ggml.token_type must have"),
    "odd types": (fields(TOKENS, token_type=[9] * 264), "tokenizer.ggml.token_type must have"),
    "vocabulary": (a_token_more, "llama.vocab_size is 264 and tokenizer.ggml.tokens has 265"),
    "twice": (a_token_twice, "has a token twice"),
    "no end": (fields(TOKENS, eos_token_id=MISSING), "eos_token_id is missing"),
    "end beyond": (fields(TOKENS, eos_token_id=9999), "eos_token_id is 9999"),
    "end after a prompt": (fields(TOKENS, add_eos_token=True), "add_eos_token is True"),
    "normaliser": (fields(TOKENS, precompiled_charsmap=[1, 2]), "precompiled_charsmap"),
    "template": (fields(tokenizer__chat_template="{% for %}"), "tokenizer.chat_template"),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_what_would_be_another_model_is_refused(
    specadapt, model, tokenizer, tmp_path, change, said
):
    file, out = tmp_path / "some.gguf", tmp_path / "bundles" / "out"
    write_gguf(file, model, tokenizer, change=change)
    line = specadapt.refusal("bundle", "import", file, "--out", out)
    assert "some.gguf" in line
    assert said in line
    assert not list(out.parent.glob("*"))
    assert not list(out.parent.glob(".*"))


@pytest.mark.parametrize("kept", [3, -1])
def test_a_file_that_is_cut_off_is_refused(specadapt, gguf_file, tmp_path, kept):
    file = tmp_path / "cut.gguf"
    file.write_bytes(gguf_file.read_bytes()[:kept])
    line = specadapt.refusal("bundle", "import", file, "--out", tmp_path / "out")
    assert "cut.gguf" in line
    assert "is not a whole GGUF file" in line
    assert not (tmp_path / "out").exists()


def test_the_byte_order_of_other_machines_is_refused(
    specadapt, model, tokenizer, tmp_path, monkeypatch
):
    """gguf reads the fields of such a file, and the weights as if they were this machine's."""

    class OtherOrder(gguf.GGUFWriter):
        def __init__(self, file, name):
            super().__init__(file, name, endianess=gguf.GGUFEndian.BIG)

    monkeypatch.setattr(gguf, "GGUFWriter", OtherOrder)
    file = tmp_path / "some.gguf"
    write_gguf(file, model, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    line = specadapt.refusal("bundle", "import", file, "--out", tmp_path / "out")
    assert "some.gguf: its bytes are in the order of other machines" in line


def test_tensors_in_one_place_are_refused(specadapt, gguf_file, tmp_path):
    whole, tensors = bytearray(gguf_file.read_bytes()), gguf.GGUFReader(gguf_file).tensors
    [keys] = [t for t in tensors if t.name == "blk.0.attn_k.weight"]
    [values] = [t for t in tensors if t.name == "blk.0.attn_v.weight"]
    offset = keys.field.parts[-1].tobytes()
    at = values.field.offset + sum(part.nbytes for part in values.field.parts[:-1])
    whole[at : at + len(offset)] = offset
    file = tmp_path / "some.gguf"
    file.write_bytes(whole)
    line = specadapt.refusal("bundle", "import", file, "--out", tmp_path / "out")
    assert "blk.0.attn_k.weight" in line
    assert "blk.0.attn_v.weight" in line
    assert "overlap" in line


@pytest.mark.skipif(not CASES.is_dir(), reason="needs the cases in ../shared")
def test_linear_scaling_of_a_published_file_is_carried_over(specadapt, tmp_path):
    out = tmp_path / "out"
    specadapt.json("bundle", "import", CASES / "rope_linear.gguf", "--out", out)
    rope = json.loads((out / "target" / "config.json").read_text())["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("linear", 4.0)


def test_a_pointer_to_a_file_elsewhere_is_refused(specadapt, tmp_path):
    file = tmp_path / "pointer.gguf"
    file.write_text(POINTER)
    assert "run `git lfs pull`" in specadapt.refusal("bundle", "import", file)


def test_a_quantisation_that_is_not_read_is_refused(specadapt, model, tokenizer, tmp_path):
    file = tmp_path / "some.gguf"
    write_gguf(file, model, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    whole = bytearray(file.read_bytes())
    # the type of the first matrix, behind its name, its number of dimensions and these
    at = whole.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    whole[at : at + 4] = (99).to_bytes(4, "little")
    file.write_bytes(whole)
    assert "99) is not a valid GGMLQuantizationType" in specadapt.refusal("bundle", "import", file)
