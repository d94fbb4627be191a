"""A profile's folder as the replay engine reads it."""

from recordings import write_profile

from workers.replay_engine.recording import Recording


def test_a_line_ends_at_a_line_feed_only(tmp_path):
    folder = write_profile(tmp_path / "profile", {"naive": [[30], [31]]}, bundle="demo@1")
    file = folder / "prompts.jsonl"
    odd = file.read_text(encoding="utf-8").replace("prompt 0", "one\u2028two\u0085three")
    file.write_text(odd, encoding="utf-8")
    assert len(Recording.load(folder).answers) == 1
