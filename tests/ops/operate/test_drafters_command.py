"""`specadapt drafters` on a service's version store."""

import json
import time
from pathlib import Path

import pytest
from sampled import sample
from stored_heads import head, origin, store

from deployments.drafters.sample_store import SampleStore
from deployments.drafters.samples import Samples
from deployments.drafters.versions import VersionStore
from schemas import FeedbackConfig, Gain, Verdict
from workers.bundle import Bundle
from workers.target_hash import target_hash


@pytest.fixture
def config(tmp_path: Path, tiny_bundle) -> Path:
    file, state = tmp_path / "config.yaml", str(tmp_path / "state")
    feedback = {"state_uri": state, "drafter_training": True}
    file.write_text(json.dumps({"bundle": str(tiny_bundle.path), "feedback": feedback}))
    return file


@pytest.fixture
def versions(tmp_path: Path, tiny_bundle: Bundle) -> VersionStore:
    """Two versions of EAGLE-3's head, each tuned from the one before it."""
    kept = store(str(tmp_path / "state"), target=target_hash(tiny_bundle))
    folder = head(tmp_path / "head")
    gain = Gain(conversations=30, parent=2.0, candidate=2.2, low=0.07, high=0.13)
    better = Verdict(better=True, overall=gain, by_group={"temperature 0": gain})
    for parent in (0, 1):
        kept.add(folder, origin(parent=parent).model_copy(update={"verdict": better}))
    return kept


def test_versions_serve_as_they_are_told(specadapt, config: Path, versions: VersionStore) -> None:
    def asked(*arguments: object) -> dict:
        return specadapt.json("drafters", *arguments, "--config", config)

    assert asked("promote", 2)["numbers"] == {"eagle3": 2}
    assert asked("rollback", "eagle3")["numbers"] == {"eagle3": 1}
    assert asked("pause")["paused"]
    versions.try_out(2, 0.1)
    listed = asked("list")
    assert [version["number"] for version in listed["versions"]] == [2, 1]
    assert listed["in_force"] == versions.in_force().model_dump(mode="json")
    assert asked("rollback", "eagle3")["canaries"] == {}
    assert not asked("resume")["paused"]
    assert asked("show", 2) == versions.get(2).model_dump(mode="json")


def test_people_read_what_serves(specadapt, config: Path, versions: VersionStore) -> None:
    versions.promote(1)
    versions.try_out(2, 0.1)
    text = specadapt("drafters", "list", "--config", config).stdout
    for part in ("in force", "canary 10%", "+10.0%", "1970-01-01", "not paused"):
        assert part in text
    text = specadapt("drafters", "show", 2, "--config", config).stdout
    assert "tuned from 1 on 3 answers (90 tokens)" in " ".join(text.split())
    assert "temperature 0" in text
    assert "+7.0%, +13.0%" in text
    text = specadapt("drafters", "rollback", "eagle3", "--config", config).stdout
    assert "Training is not paused." in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", 3), "NUMBER: there is no version 3"),
        (("promote", 3), "(there are 2, 1)"),
        (("rollback", "eagle3"), "eagle3: the bundle's own head is in force"),
        (("rollback", "draft"), "PART: 'draft' is no part with a head; parts: eagle3, eagle"),
    ],
)
@pytest.mark.usefixtures("versions")
def test_bad_input(specadapt, config: Path, arguments: tuple, said: str) -> None:
    assert said in specadapt.refusal("drafters", *arguments, "--config", config)


def test_a_damaged_version_is_not_promoted(specadapt, config: Path, versions: VersionStore) -> None:
    (versions.folder(1) / "version.json").write_text("{")
    refused = specadapt.refusal("drafters", "promote", 1, "--config", config)
    assert "NUMBER: the manifest of version 1 is unreadable" in refused
    assert "(there are 2)" in refused


def test_a_service_that_does_not_train_serves_the_bundles_heads(specadapt, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("{}")
    refused = specadapt.refusal("drafters", "pause", "--config", file)
    assert "feedback.drafter_training is false" in refused


def test_a_head_is_trained_by_hand(
    specadapt, config: Path, versions: VersionStore, tiny_bundle: Bundle, tmp_path: Path
) -> None:
    def refused(*arguments: object) -> str:
        return specadapt.refusal("drafters", "train", *arguments, "--config", config)

    feedback = FeedbackConfig(state_uri=str(tmp_path / "state"))
    assert "PART: several heads are trained: name one of eagle3, eagle, medusa" in refused()
    assert "'draft' is not trained by this service, only eagle3" in refused("draft")
    assert "too few answers: 0 answers are kept, of 0 held conversations" in refused("eagle3")
    now = time.time()
    made = [sample(f"old {i}", time=now - 1e6) for i in range(300)]
    SampleStore(Samples(feedback, "tiny").uri).append(made)
    assert "too few answers: 0 answers are kept" in refused("eagle3"), "they have expired"
    made = [sample(str(i), time=now) for i in range(300)]
    Samples(feedback, "tiny", target="another").take(made)
    assert "too few answers: 0 answers are kept" in refused("eagle3"), "another target's"
    made = [sample(f"own {i}", time=now) for i in range(300)]
    Samples(feedback, "tiny", target=target_hash(tiny_bundle)).take(made)
    versions.try_out(2, 0.1)
    assert "the canary of eagle3 is not decided yet" in refused("eagle3")
    versions.roll_back("eagle3")
    versions.pause(True)
    assert "training is paused" in refused("eagle3")
    versions.pause(False)
    asked = specadapt.json("drafters", "train", "eagle3", "--config", config)
    assert asked["training"] == versions.in_force().training == "eagle3"
    assert "eagle3 is trained already" in refused("medusa")
    assert "eagle3 is trained" in specadapt("drafters", "list", "--config", config).stdout


def test_answers_are_counted_and_erased_by_owner(specadapt, config: Path, tmp_path: Path) -> None:
    feedback = FeedbackConfig(state_uri=str(tmp_path / "state"))
    now = time.time()
    made = [sample(name, owner=f"tenant {name[0]}", time=now) for name in ("a1", "a2", "b1")]
    Samples(feedback, "tiny").take(made)

    def asked(*arguments: object) -> object:
        return specadapt.json("drafters", "samples", *arguments, "--config", config)

    assert asked() == [
        {"owner": "tenant a", "answers": 2, "tokens": 20},
        {"owner": "tenant b", "answers": 1, "tokens": 10},
    ]
    assert asked("--erase", "tenant a") == {"erased": "tenant a", "answers": 2, "tokens": 20}
    assert [row["owner"] for row in asked()] == ["tenant b"]
    refused = specadapt.refusal("drafters", "samples", "--erase", "b", "--config", config)
    assert "--erase: give 'tenant b' or 'key b'" in refused
    assert [row["owner"] for row in asked()] == ["tenant b"]
