from dataclasses import replace
from pathlib import Path

import pytest
from routing_world import make_profile

from router.fit.profile import Profile, ProfileError, prompt_key


def test_a_profile_survives_the_disk(tmp_path: Path) -> None:
    profile, _ = make_profile(noise=0.1)
    profile.save(tmp_path / "p")
    assert Profile.load(tmp_path / "p") == profile


def test_speedups_are_paired_by_prompt() -> None:
    profile, _ = make_profile()
    paired = profile.paired(["ngram"])
    assert paired.speedups.shape == (20, 1)
    cluster = [int(i.split("-")[1]) % 2 for i in paired.prompt_ids]
    expected = [(0.02 + 0.60) / (0.02 + s * 0.011) for s in (50, 12)]
    assert paired.speedups[:, 0] == pytest.approx([expected[c] for c in cluster])
    with pytest.raises(ProfileError, match="medusa"):
        profile.paired(["medusa"])


def test_a_part_of_a_profile_is_a_profile() -> None:
    profile, _ = make_profile()
    wanted = [p.id for p in profile.prompts[3:7]]
    part = profile.only(wanted)
    assert [p.id for p in part.prompts] == wanted
    assert {row.prompt_id for row in part.rows} == set(wanted)
    assert len(part.rows) * len(profile.prompts) == len(profile.rows) * 4
    assert (part.meta, part.steps) == (profile.meta, profile.steps)
    with pytest.raises(ProfileError, match="strange is not in the profile"):
        profile.only(["strange", *wanted])
    with pytest.raises(ProfileError, match="no ids"):
        profile.only([])


def test_damage_is_named_with_file_and_line(tmp_path: Path) -> None:
    profile, _ = make_profile()
    with pytest.raises(ProfileError, match=r"profile\.json is missing"):
        Profile.load(tmp_path)
    profile.save(tmp_path)
    rows = (tmp_path / "rows.jsonl").read_text().split("\n")
    rows[2] = rows[2].replace('"seconds":', '"secs":')
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    with pytest.raises(ProfileError, match=r"rows\.jsonl, line 3: "):
        Profile.load(tmp_path)
    (tmp_path / "steps.jsonl").unlink()
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(ProfileError, match=r"steps\.jsonl is missing"):
        Profile.load(tmp_path)


def test_rows_must_name_known_prompts_and_methods() -> None:
    profile, _ = make_profile()
    with pytest.raises(ProfileError, match="nobody"):
        replace(profile, rows=(profile.rows[0].model_copy(update={"prompt_id": "nobody"}),))
    with pytest.raises(ProfileError, match="twice"):
        replace(profile, prompts=profile.prompts * 2)


def test_the_key_of_a_prompt_ignores_white_space() -> None:
    assert prompt_key("a  b\n") == prompt_key("a b") != prompt_key("ab")
