"""`specadapt serve MODEL`: what it serves, and which models it refuses."""

import json
import shutil

import pytest
from gguf_writer import given, write_gguf

from deployments import run
from deployments.guard.key_file import hash_of, read_keys
from workers.bundle import load_bundle

SAMPLED = "general.sampling.temp"


@pytest.fixture
def served(specadapt, monkeypatch, tmp_path):
    """The configuration that `specadapt serve` with these arguments hands to the service."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = []
    monkeypatch.setattr(run, "serve_forever", lambda config, **_: found.append(config))

    def settings(*arguments):
        result = specadapt("serve", *arguments)
        assert result.exit_code == 0, result.stderr
        return found[-1]

    return settings


def test_a_gguf_file_is_imported_once(served, gguf_file, tmp_path):
    first = served(gguf_file).bundle
    assert first.parent == tmp_path / "cache" / "specadapt" / "bundles"
    assert load_bundle(first).name == "tiny-model.q8-0"
    written = (first / "provenance.json").stat().st_mtime_ns
    assert served(gguf_file).bundle == first
    assert (first / "provenance.json").stat().st_mtime_ns == written


def test_flags_win_over_the_configuration(served, folder, tmp_path):
    file = tmp_path / "serve.yaml"
    advised = {"temperature": 0.6, "top_p": 0.95, "max_length": 99}
    (folder / "generation_config.json").write_text(json.dumps(advised))
    file.write_text(
        "engine: {max_batch: 2, dtype: bfloat16}\nhttp: {port: 7000}\n"
        "methods: [{name: ngram, max_replicas: 3}]\n"
    )
    flags = ("--max-model-len", 1000, "--max-num-seqs", 4, "--dtype", "float32", "--port", 7001)
    found = served(folder, "--config", file, *flags, "--methods", "naive,ngram")
    bundle = load_bundle(found.bundle)
    assert bundle.name == "some-model"
    assert (bundle.sampling.temperature, bundle.sampling.top_p) == (0.6, 0.95)
    engine = found.engine
    assert (engine.max_context, engine.max_batch, engine.kv_slots) == (1000, 4, 4000)
    assert (engine.dtype, found.http.port) == ("float32", 7001)
    assert [(m.name, m.max_replicas) for m in found.methods] == [("naive", 1), ("ngram", 3)]


def test_a_head_of_ones_own_is_served_with_the_model(served, tiny_bundle, folder, tmp_path):
    head = tmp_path / "head"
    shutil.copytree(tiny_bundle.part("medusa"), head)
    asked = (folder, "--speculator", f"medusa={head}", "--served-model-name", "mine")
    found = served(*asked)
    bundle = load_bundle(found.bundle)
    assert bundle.name == "mine"
    assert bundle.part("medusa").is_dir()
    assert served(*asked).bundle == found.bundle
    assert not load_bundle(served(folder).bundle).has("medusa")


def test_a_key_is_kept_as_its_hash(served, tiny_bundle):
    file = served(tiny_bundle.path, "--api-key", "secret").http.guard.keys_file
    assert read_keys(file).keys[0].sha256 == hash_of("secret")


def test_vllms_flags_are_its_arguments(served, tiny_bundle):
    flags = ("--tensor-parallel-size", 2, "--gpu-memory-utilization", 0.5)
    given = served(tiny_bundle.path, *flags).engine.vllm
    assert given == {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.5}


@pytest.mark.parametrize(
    ("speculator", "said"),
    [
        ("medusa", "--speculator: medusa: must be PART=MODEL; parts are draft, medusa"),
        ("target=x", "--speculator: target=x: must be PART=MODEL"),
        ("medusa=nowhere", "--speculator: nowhere does not exist"),
    ],
)
def test_another_speculator_is_refused(specadapt, tiny_bundle, speculator, said):
    assert said in specadapt.refusal("serve", tiny_bundle.path, "--speculator", speculator)


@pytest.mark.parametrize(("advised", "taken"), [(0.3, 0.3), (-1.0, None)])
def test_a_gguf_files_advice_is_the_bundles_sampling(
    specadapt, model, tokenizer, tmp_path, advised, taken
):
    file = tmp_path / "advised.gguf"
    write_gguf(file, model, tokenizer, change=given({SAMPLED: advised}))
    specadapt.json("bundle", "import", file, "--out", tmp_path / "made")
    assert load_bundle(tmp_path / "made").sampling.temperature == pytest.approx(taken)


def test_what_an_import_leaves_out_is_named(specadapt, model, tokenizer, tmp_path):
    file, left = tmp_path / "a.gguf", "general.sampling.mirostat_tau"
    more = {"tokenizer.chat_template.tool_use": "{{ 1 }}", left: 5.0, SAMPLED: 0.3}
    write_gguf(file, model, tokenizer, change=given(more))
    found = specadapt("bundle", "import", file, "--out", tmp_path / "made")
    assert f"left out: tokenizer.chat_template.tool_use, {left}\n" in found.stdout


def test_a_model_that_the_memory_does_not_hold_is_refused(specadapt, tiny_bundle, tmp_path):
    source = tmp_path / "large"
    shutil.copytree(tiny_bundle.part("tokenizer"), source)
    shutil.copy(tiny_bundle.part("target") / "config.json", source)
    size = 200 * 10**9
    header = {"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    with (source / "model.safetensors").open("wb") as weights:
        weights.write(len(text).to_bytes(8, "little") + text)
        weights.truncate(8 + len(text) + size)
    said = specadapt.refusal("serve", source)
    assert "the weights take at least 200.0 GB of memory, and" in said


def test_a_bundle_is_served_as_it_is(served, tiny_bundle):
    assert served(tiny_bundle.path).bundle == tiny_bundle.path


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere", "MODEL: nowhere does not exist"),
        ("some/model", "MODEL: some/model is no file or folder here and cannot be downloaded"),
        ("tests", "MODEL: tests is neither a GGUF file nor a folder with config.json"),
        ("README.md", "README.md"),
    ],
)
def test_another_model_is_refused(specadapt, monkeypatch, model, said):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert said in specadapt.refusal("serve", model)
