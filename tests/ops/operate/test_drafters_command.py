"""`specadapt drafters` on a service's stores of versions and samples."""

import json
import time

import pytest
from sampled import sample
from stored_heads import head, origin, store

from deployments.head_training.samples import Samples, SampleStore
from schemas import FeedbackConfig, Gain, Verdict
from workers.weight_files import target_hash


@pytest.fixture
def config(tmp_path, tiny_bundle):
    file, state = tmp_path / "config.yaml", str(tmp_path / "state")
    feedback = {"state_uri": state, "drafter_training": True}
    file.write_text(json.dumps({"bundle": str(tiny_bundle.path), "feedback": feedback}))
    return file


@pytest.fixture
def versions(tmp_path, tiny_bundle):
    """Two versions of EAGLE-3's head, each tuned from the one before it."""
    kept = store(str(tmp_path / "state"), target=target_hash(tiny_bundle))
    folder = head(tmp_path / "head")
    gain = Gain(conversations=30, parent=2.0, candidate=2.2, low=0.07, high=0.13)
    better = Verdict(better=True, overall=gain, by_group={"temperature 0": gain})
    for parent in (0, 1):
        kept.add(folder, origin(parent=parent).model_copy(update={"verdict": better}))
    return kept


def test_versions_serve_as_they_are_told(specadapt, config, versions):
    def asked(*arguments: object) -> dict:
        return specadapt.json("drafters", *arguments, "--config", config)

    assert asked("promote", 2)["numbers"] == {"eagle3": 2}
    assert asked("rollback", "eagle3")["numbers"] == {"eagle3": 1}
    assert asked("pause")["paused"]
    versions.try_out(2, 0.1)
    listed = asked("list")
    assert listed["versions"] == [one.model_dump(mode="json") for one in versions.all()]
    assert listed["in_force"] == versions.in_force().model_dump(mode="json")
    text = specadapt("drafters", "list", "--config", config).stdout
    for part in ("active", "canary 10%", "+10.0%", "1970-01-01", "Training is paused."):
        assert part in text
    assert asked("rollback", "eagle3")["canaries"] == {}
    assert not asked("resume")["paused"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("promote", 3), "NUMBER: there is no version 3"),
        (("promote", 1), "NUMBER: the manifest of version 1 is unreadable"),
        (("rollback", "eagle3"), "eagle3: the bundle's own head is active"),
        (("rollback", "draft"), "PART: 'draft' is no part with a head; parts: eagle3, eagle"),
    ],
)
def test_bad_input(specadapt, config, versions, arguments, said):
    (versions.folder(1) / "version.json").write_text("{")
    assert said in specadapt.refusal("drafters", *arguments, "--config", config)


def test_a_service_that_does_not_train_serves_the_bundles_heads(specadapt, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("{}")
    refused = specadapt.refusal("drafters", "pause", "--config", file)
    assert "feedback.drafter_training is false" in refused


def test_a_head_is_trained_by_hand(specadapt, config, versions, tiny_bundle, tmp_path):
    def refused(*arguments: object) -> str:
        return specadapt.refusal("drafters", "train", *arguments, "--config", config)

    kept = Samples(
        FeedbackConfig(state_uri=str(tmp_path / "state")), "tiny", target_hash(tiny_bundle)
    )
    assert "PART: several heads are trained: name one of eagle3, eagle, medusa" in refused()
    assert "'draft' is not trained by this service, only eagle3" in refused("draft")
    assert "too few answers: 0 answers are kept, of 0 held-out conversations" in refused("eagle3")
    now = time.time()
    made = [sample(f"old {i}", time=now - 1e6, target=target_hash(tiny_bundle)) for i in range(300)]
    made += [sample(f"other {i}", time=now, target="another") for i in range(300)]
    SampleStore(kept.uri).append(made)
    assert "too few answers: 0 answers are kept" in refused("eagle3"), "expired or another target's"
    kept.take([sample(f"own {i}", time=now) for i in range(300)])
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


def test_answers_are_counted_and_erased_by_owner(specadapt, config, tiny_bundle, tmp_path):
    feedback = FeedbackConfig(state_uri=str(tmp_path / "state"))
    now = time.time()
    made = [sample(name, owner=f"tenant {name[0]}", time=now) for name in ("a1", "a2", "b1")]
    Samples(feedback, "tiny", target_hash(tiny_bundle)).take(made)

    def asked(*arguments: object) -> object:
        return specadapt.json("drafters", "samples", *arguments, "--config", config)

    assert asked() == [
        {"owner": "tenant a", "answers": 2, "tokens": 20},
        {"owner": "tenant b", "answers": 1, "tokens": 10},
    ]
    assert asked("--erase", "tenant a") == {"erased": "tenant a", "answers": 2, "tokens": 20}
    refused = specadapt.refusal("drafters", "samples", "--erase", "b", "--config", config)
    assert "--erase: give 'tenant b' or 'key b'" in refused
    assert [row["owner"] for row in asked()] == ["tenant b"]
