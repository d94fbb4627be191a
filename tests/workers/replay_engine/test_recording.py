"""A profile's folder as the replay engine reads it."""

import pytest
from recordings import STEP, write_profile

from schemas import EngineConfig, MethodSpec
from workers.engine import Engine
from workers.loader import load_engine
from workers.methods import get_method
from workers.replay_engine.recording import Recording, RecordingError

SPECS = [get_method(name).model_copy(update={"engine": "replay"}) for name in STEP]
PLAIN = [[30 + i] for i in range(21)]
"""One token a step, as plain decoding."""


def test_a_line_ends_at_a_line_feed_only(tmp_path):
    folder = write_profile(tmp_path / "profile", {"naive": [[30], [31]]}, bundle="demo@1")
    file = folder / "prompts.jsonl"
    odd = file.read_text(encoding="utf-8").replace("prompt 0", "one\u2028two\u0085three")
    file.write_text(odd, encoding="utf-8")
    assert len(Recording.load(folder).answers) == 1


def test_answers_decoded_beside_others_cannot_be_replayed(tmp_path):
    folder = write_profile(tmp_path / "busy", {"naive": PLAIN}, bundle="demo@1")
    meta = folder / "profile.json"
    meta.write_text(meta.read_text().replace('"concurrency":1', '"concurrency":4'))
    with pytest.raises(RecordingError, match="answers were decoded 4 at a time"):
        Recording.load(folder)


def test_profiles_that_cannot_be_replayed(tmp_path, tiny_bundle):
    def loading(config: EngineConfig, specs: list[MethodSpec] = SPECS) -> Engine:
        return load_engine(specs, tiny_bundle, config)

    ours = f"{tiny_bundle.name}@{tiny_bundle.content_hash}"
    with pytest.raises(ValueError, match=r"^engine\.replay: methods of engine 'replay' need"):
        loading(EngineConfig())
    with pytest.raises(RecordingError, match=r"profile\.json is missing"):
        loading(EngineConfig(replay=tmp_path))
    other = write_profile(tmp_path / "other", {"naive": PLAIN}, bundle="demo@1")
    with pytest.raises(RecordingError, match=f"recorded with bundle demo@1, not {ours}"):
        loading(EngineConfig(replay=other))
    folder = write_profile(tmp_path / "mine", {"naive": PLAIN}, bundle=ours)
    unknown = [SPECS[0].model_copy(update={"name": "medusa"})]
    with pytest.raises(ValueError, match="profile to replay has no medusa, only naive, ngram"):
        loading(EngineConfig(replay=folder), unknown)
    other_settings = SPECS[1].model_copy(update={"settings": {"stop": {"gamma": 3}}})
    with pytest.raises(RecordingError, match="ngram: the profile to replay was measured"):
        loading(EngineConfig(replay=folder), [other_settings])
    mixed = [SPECS[0], MethodSpec(name="plain", lossless=True, source="test")]
    with pytest.raises(ValueError, match="not of replay, torch"):
        loading(EngineConfig(replay=folder), mixed)
    rows = folder / "rows.jsonl"
    body = rows.read_text()
    rows.write_text(body.replace('"drafted":[false,', '"drafted":['))
    with pytest.raises(RecordingError, match=r"rows\.jsonl, line 1: recorded: .*drafted: 20 for"):
        loading(EngineConfig(replay=folder))
    prompts = folder / "prompts.jsonl"
    rows.write_text(body)
    prompts.write_text(
        prompts.read_text().replace('"token_ids":[1,2,3,4,5,6,7,8,9,10]', '"token_ids":[]')
    )
    with pytest.raises(RecordingError, match="no tokens are kept of p0 under naive: profile again"):
        loading(EngineConfig(replay=folder))
    (folder / "steps.jsonl").write_text("")
    with pytest.raises(RecordingError, match="no step times of naive, ngram"):
        loading(EngineConfig(replay=folder))
