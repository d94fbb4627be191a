"""`specadapt train medusa|eagle|eagle3` on a tiny family: figures, files, refusals."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from spoiling import changed, config, tensors

from training.heads import StoredHead
from workers.bundle import load_bundle


def answers_file(file: Path, answer: list[int]) -> Path:
    """Twenty equal answers of a target."""
    line = {"domain": "answers", "temperature": 0.0, "prompt": [1, 4, 9], "answer": answer}
    file.write_text("".join(json.dumps(line | {"id": str(i)}) + "\n" for i in range(20)))
    return file


@pytest.fixture
def folders(tiny_bundle, tmp_path):
    """A bundle and some answers of its target."""
    answers_file(tmp_path / "generations.jsonl", [10, 11, 12])
    return tiny_bundle.path, tmp_path


def file(folders, **changes):
    """The YAML file of a short training; a field that is None is left out."""
    bundle, folder = folders
    fields = {"bundle": bundle, "generations": folder / "generations.jsonl", "device": "cpu"}
    fields |= {"threads": 1, "tokens": 100, "batch_tokens": 512, "length": 64, "cache_gb": 0.1}
    fields |= {"work": folder / "work", "out": folder / "out"} | changes
    given = {k: str(v) if isinstance(v, Path) else v for k, v in fields.items() if v is not None}
    written = folder / "train.yaml"
    written.write_text(json.dumps(given))
    return written


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("medusa", {"vocabulary": 50}),
        ("eagle", {"positions": 2}),
        ("eagle", {"vocabulary": 50}),
        ("eagle3", {"vocabulary": 0}),
    ],
)
def test_heads_are_trained_and_measured(specadapt, folders, kind, given):
    figures = specadapt.json("train", kind, file(folders, **given))
    assert figures["tokens_per_step"].keys() == {"answers"}
    assert figures["tokens_per_step"]["answers"] >= 1.0
    out = folders[1] / "out"
    assert json.loads((out / "config.json").read_text())["hidden_size"] == 64
    assert (out / "model.safetensors").exists()
    listed = out / "draft_vocabulary.json"
    assert listed.exists() == (kind == "eagle" and "vocabulary" in given)
    if listed.exists():
        assert len(json.loads(listed.read_text())["token_ids"]) == 50


LAST_LAYERS = {"eagle_aux_hidden_state_layer_ids": [1, 2]}
FAR_LAYERS = {"eagle_aux_hidden_state_layer_ids": [2, 9, 40]}
OTHER_ROTARY = {"rope_theta": 5.0, "rope_type": "default"}


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("medusa", {"vocabulary": 10**6}, "vocabulary: 1000000 is more than"),
        ("eagle3", {"length": 100}, "batch_tokens: 512 is not a multiple of length"),
        ("eagle3", {"lenght": 64}, "train.yaml: lenght: unknown field"),
        ("eagle3", {"bundle": None}, "train.yaml: bundle: Field required"),
        ("eagle3", {"generations": "{folder}/none.jsonl"}, "none.jsonl"),
        ("medusa", {"start": "{folder}"}, "config.json"),
        ("eagle3", {"start": "{bundle}/eagle"}, "the weights lack"),
        ("eagle", {"start": "{bundle}/eagle3"}, "the weights lack layers.0."),
        ("medusa", {"start": "{bundle}/eagle"}, "holds no Medusa heads"),
        ("eagle3", {"start": "{bundle}/eagle3", "vocabulary": 77}, "start: the head has its"),
        ("medusa", {"start": "{bundle}/medusa", "positions": 7}, "start: the head has its"),
    ],
)
def test_what_cannot_be_used_is_named(specadapt, folders, kind, given, named):
    filled = {
        name: value.format(folder=folders[1], bundle=folders[0])
        if isinstance(value, str)
        else value
        for name, value in given.items()
    }
    assert named in specadapt.refusal("train", kind, file(folders, **filled))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("eagle3", {"hidden_size": 128}, "hidden_size is 128, the target's is 64"),
        ("medusa", {"vocab_size": 77}, "vocab_size is 77"),
        ("eagle3", {"rope_parameters": OTHER_ROTARY}, "rope_parameters"),
        ("eagle", {"num_attention_heads": 2, "head_dim": 32}, "num_attention_heads is 2"),
        ("eagle3", {"norm_before_residual": True}, "norm_before_residual"),
        ("eagle3", {"eagle_config": FAR_LAYERS}, "reads layers"),
    ],
)
def test_a_head_of_another_target_is_refused(specadapt, folders, tmp_path, kind, change, said):
    other = changed_head(folders[0] / kind, tmp_path / "head", **change)
    line = specadapt.refusal("train", kind, file(folders, start=other))
    assert f"{other}/config.json" in line
    assert said in line


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "eagle"])
def test_a_head_that_goes_on_keeps_its_tokens(specadapt, folders, kind):
    """Whatever the new answers speak most: an LM head's rows belong to the tokens they had."""
    folder = folders[1]
    specadapt.json("train", kind, file(folders, vocabulary=50))
    first = StoredHead(folder / "out", kind)
    other = answers_file(folder / "other.jsonl", [70, 71, 72])
    given = {"start": folder / "out", "generations": other, "learning_rate": 0}
    given |= {"work": folder / "more", "out": folder / "more"}
    specadapt.json("train", kind, file(folders, **given))
    again = StoredHead(folder / "more", kind)
    assert again.vocabulary.tolist() == first.vocabulary.tolist()
    assert len(again.vocabulary) == 50
    for name, weight in first.weights.items():
        torch.testing.assert_close(again.weights[name], weight, atol=1e-3, rtol=0.02)
    # Another run's checkpoint in the folder of its work is refused.
    result = specadapt("train", kind, file(folders, vocabulary=50, generations=other))
    assert result.exit_code == 2
    assert "the checkpoint drafts other tokens" in result.stderr.splitlines()[-1]


def test_a_head_that_goes_on_reads_the_layers_it_read(specadapt, folders, tmp_path):
    bundle, folder = folders
    other = changed_head(bundle / "eagle3", tmp_path / "head", eagle_config=LAST_LAYERS)
    specadapt.json("train", "eagle3", file(folders, start=other))
    config = json.loads((folder / "out" / "config.json").read_text())
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 2]


def changed_head(folder, out, **changes):
    """A copy of a head with other values in its config.json, and an fc of as many layers."""
    shutil.copytree(folder, out)
    config(**changes)(out)
    layers = changes.get("eagle_config", {}).get("eagle_aux_hidden_state_layer_ids", ())
    if len(layers) == 2:
        tensors(changed("fc.weight", lambda w: w[:, : 2 * 64]))(out)
    return out


def test_the_bundle_gets_the_heads_as_its_part(specadapt, folders):
    bundle, folder = folders[1] / "bundle", folders[1]
    shutil.copytree(folders[0], bundle)
    shutil.rmtree(bundle / "medusa")
    parts = {"target": "target", "tokenizer": "tokenizer"}
    (bundle / "bundle.json").write_text(json.dumps({"name": "own", "parts": parts}))
    specadapt.json("train", "medusa", file((bundle, folder), out=None))
    assert load_bundle(bundle).parts == parts | {"medusa": "medusa"}
    assert load_bundle(bundle).has("medusa")


def test_heads_learn_from_the_targets_own_answers(specadapt, folders, prompts_file):
    bundle, folder = folders
    answers, written = folder / "own.jsonl", folder / "answers.yaml"
    fields = {"bundle": str(bundle), "prompts": [str(prompts_file)], "out": str(answers)}
    fields |= {"max_tokens": 12, "batch": 4, "threads": 1, "dtype": "float32"}
    written.write_text(json.dumps(fields))
    assert specadapt.json("train", "generate", written)["answers"] == 12
    assert answers.read_text().count("\n") == 12
    figures = specadapt.json("train", "eagle", file(folders, generations=answers))
    assert set(figures["tokens_per_step"]) <= {"math", "edit"}
    written.write_text(json.dumps(fields | {"prompt": "x"}))
    assert "answers.yaml: prompt: unknown field" in specadapt.refusal("train", "generate", written)
