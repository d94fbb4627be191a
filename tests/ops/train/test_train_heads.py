"""`specadapt train medusa|eagle|eagle3` on a tiny family: figures, files, refusals."""

import json
import shutil

import pytest

from workers.bundle import load_bundle


def flags(folders, *given):
    bundle, folder = folders
    generations = folder / "generations.jsonl"
    return [
        *["--bundle", bundle, "--corpus", folder, "--generations", generations, "--threads", 1],
        *["--tokens", 100, "--batch-tokens", 2048, "--length", 64, "--device", "cpu"],
        *["--work", folder / "work", "--out", folder / "out", "--cache-gb", 0.1, *given],
    ]


@pytest.mark.parametrize(
    ("kind", "given", "positions"),
    [
        ("medusa", ["--vocabulary", 50], 4),
        ("eagle", ["--positions", 2], 2),
        ("eagle", ["--vocabulary", 50], 3),
        ("eagle3", ["--vocabulary", 0], 4),
    ],
)
def test_heads_are_trained_and_measured(specadapt, folders, kind, given, positions) -> None:
    figures = specadapt.json("train", kind, *flags(folders, *given))
    assert figures["loss"] > 0
    assert figures["val_loss_by_domain"].keys() == {"counting"}
    assert figures["acceptance_by_domain"].keys() == {"counting", "mean"}
    assert len(figures["accuracy_by_position"]) == positions
    assert all(len(shares) == 5 for shares in figures["accuracy_by_position"])
    out = folders[1] / "out"
    config = json.loads((out / "config.json").read_text())
    assert config["hidden_size"] == 64
    assert (out / "model.safetensors").exists()
    listed = out / "draft_vocabulary.json"
    assert listed.exists() == (kind == "eagle" and "--vocabulary" in given)
    if listed.exists():
        assert len(json.loads(listed.read_text())["token_ids"]) == 50


def test_heads_go_on_from_weights_and_share_the_targets_states(specadapt, folders) -> None:
    given, out = ["--vocabulary", 50], folders[1] / "out"
    specadapt.json("train", "medusa", *flags(folders, *given))
    again = [*given, "--start", out, "--work", folders[1] / "more", "--out", folders[1] / "more"]
    specadapt.json("train", "medusa", *flags(folders, *again))
    shared = ["--features", folders[1] / "work/features", "--work", folders[1] / "third"]
    specadapt.json("train", "medusa", *flags(folders, *given, *shared))
    assert not (folders[1] / "third/features").exists()


@pytest.mark.parametrize(
    ("kind", "given", "named"),
    [
        ("medusa", ["--vocabulary", 10**6], "--vocabulary"),
        ("eagle3", ["--length", 100], "--length"),
        ("eagle3", ["--generations", "{folder}/none.jsonl"], "none.jsonl"),
        ("eagle3", ["--target", "{folder}"], "config.json"),
        ("eagle", ["--corpus-share", 1.0], "--corpus-share"),
        ("medusa", ["--start", "{folder}"], "model.safetensors"),
    ],
)
def test_what_cannot_be_used_is_named(specadapt, folders, kind, given, named) -> None:
    filled = [str(f).format(folder=folders[1]) for f in given]
    assert named in specadapt.refusal("train", kind, *flags(folders, *filled))


def test_the_bundle_gets_the_heads_as_its_part(specadapt, folders) -> None:
    bundle, folder = folders[1] / "bundle", folders[1]
    shutil.copytree(folders[0], bundle)
    shutil.rmtree(bundle / "medusa")
    parts = {"target": "target", "tokenizer": "tokenizer"}
    (bundle / "bundle.json").write_text(json.dumps({"name": "own", "parts": parts}))
    given = flags((bundle, folder))
    out = given.index("--out")
    specadapt.json("train", "medusa", *given[:out], *given[out + 2 :])
    assert load_bundle(bundle).parts == parts | {"medusa": "medusa"}
    assert load_bundle(bundle).has("medusa")


def test_the_help_has_an_example(specadapt) -> None:
    for kind in ("medusa", "eagle", "eagle3"):
        assert f"specadapt train {kind}" in specadapt("train", kind, "--help").output


def test_without_a_corpus_answers_to_prompts_of_ones_own_suffice(
    specadapt, folders, prompts_file
) -> None:
    bundle, folder = folders
    answers = folder / "own.jsonl"
    specadapt.json(
        *["train", "generate", "--bundle", bundle, "--prompts", prompts_file, "--out", answers],
        *["--max-tokens", 12, "--batch", 4, "--threads", 1],
    )
    assert answers.read_text().count("\n") == 12
    given = flags(folders, "--corpus", folder / "none", "--corpus-share", 0)
    figures = specadapt.json("train", "eagle", *given, "--generations", answers)
    assert set(figures["val_loss_by_domain"]) <= {"math", "edit"}
