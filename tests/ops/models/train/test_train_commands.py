"""`specadapt train target` and `train draft` on a tiny family: flags, figures, refusals."""

import json
import shutil
from pathlib import Path

import pytest

from ops.models.train.setup import at_rate, budget
from training.trainer import Hyper

SMALL = ["--hidden", 16, "--layers", 1, "--heads", 1, "--ffn", 32]
SHORT = ["--tokens", 100, "--batch-tokens", 2048, "--batches-per-step", 1, "--device", "cpu"]


def common(folders, *names):
    bundle, folder = folders
    return ["--bundle", bundle, "--corpus", folder, "--threads", 1, *SHORT, *names]


def test_drafts_of_two_shapes_from_one_set_of_generations(specadapt, folders) -> None:
    _, folder = folders
    for name, shape in (("one", SMALL), ("two", [*SMALL[:3], 2, *SMALL[4:]])):
        figures = specadapt.json(
            *["train", "draft", *common(folders), "--generations", folder / "generations.jsonl"],
            *["--corpus-share", 0.5, "--patience", 1, "--eval-every", 1, *shape],
            *["--out", folder / name, "--work", folder / f"{name}-work"],
        )
        assert figures["loss"] > 0
        assert figures["val_loss_by_domain"].keys() == {"counting"}
        assert figures["acceptance_by_domain"].keys() == {"counting", "mean"}
        assert (folder / name / "model.safetensors").exists()
    layers = [
        json.loads((folder / n / "config.json").read_text())["num_hidden_layers"]
        for n in ("one", "two")
    ]
    assert layers == [1, 2]


def test_a_target_goes_on_from_weights(specadapt, folders) -> None:
    bundle, folder = folders
    figures = specadapt.json(
        *["train", "target", *common(folders), "--start", bundle / "target"],
        *["--out", folder / "target", "--work", folder / "work"],
    )
    assert figures["loss"] > 0
    assert figures["acceptance_by_domain"] == {}
    assert (folder / "target/config.json").exists()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--corpus-share", 0.5], "--corpus-share"),
        (["--generations", "{folder}/generations.jsonl", "--corpus-share", 1.0], "--corpus-share"),
        (["--generations", "{folder}/none.jsonl"], "none.jsonl"),
        (["--start", "{folder}"], "--start"),
        (["--start", "{bundle}/draft", "--hidden", 64], "--hidden"),
        (["--hidden", 100, "--heads", 3], "--hidden"),
        (["--batch-tokens", 3000], "--batch-tokens"),
    ],
)
def test_what_cannot_be_used_is_named(specadapt, folders, flags, named) -> None:
    bundle, folder = folders
    given = [str(f).format(folder=folder, bundle=bundle) for f in flags]
    line = specadapt.refusal(
        *["train", "draft", *common(folders), "--work", folder / "work", *given],
        *["--out", folder / "out"],
    )
    assert named in line


def scaled(draft):
    file = draft / "config.json"
    rope = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rope_parameters": rope}))


def cut_off(draft):
    file = draft / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def another_width(draft):
    file = draft / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 96}))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (scaled, "only a plain Llama"),
        (cut_off, "model.safetensors is cut off"),
        (another_width, "config.json's model has"),
    ],
)
def test_weights_that_cannot_be_trained_further_are_refused(specadapt, folders, spoil, said):
    bundle, folder = folders
    shutil.copytree(bundle / "draft", folder / "start")
    spoil(folder / "start")
    line = specadapt.refusal(
        *["train", "draft", *common(folders), "--start", folder / "start"],
        *["--work", folder / "work", "--out", folder / "out"],
    )
    assert f"{folder}/start" in line
    assert said in line


def test_the_learning_rate_is_the_matrices_and_the_rest_in_proportion() -> None:
    hyper = at_rate(Hyper(matrix_lr=6e-3, other_lr=1e-3), 6e-4)
    assert (hyper.matrix_lr, hyper.other_lr) == pytest.approx((6e-4, 1e-4))
    assert at_rate(hyper, None) is hyper
    assert budget(1000, None, None, 7).warmup_tokens == 7


def test_a_run_from_trained_weights_warms_up_for_less(tmp_path: Path) -> None:
    afresh, onward = budget(1000, None, None, None), budget(1000, None, tmp_path, None)
    assert 0 < onward.warmup_tokens < afresh.warmup_tokens
    assert (onward.tokens, onward.minutes) == (afresh.tokens, afresh.minutes)
