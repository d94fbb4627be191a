"""Pictures of `bench decode`'s figures."""

import json

import pytest


@pytest.fixture
def run_of(tmp_path):
    """A file as `bench decode --json` writes it."""

    def write(at_once, machine="here"):
        speeds = {"naive": 1.0, "suffix": 1.5}
        methods = {
            name: {
                "throughput_tokens_per_s": 100 * speed,
                "by_domain": {"edit": {"speedup": speed}, "math": {"speedup": 1.0}},
            }
            for name, speed in speeds.items()
        }
        settings = {
            "concurrency": at_once,
            "baseline": "naive",
            "machine": machine,
            "dtype": "q4",
            "temperature": 0.0,
            "bundle": "bundles/mine",
            "prompts": {"ids": ["a"]},
        }
        file = tmp_path / f"{at_once}-{machine}.json"
        file.write_text(json.dumps({"methods": methods, "settings": settings}))
        return file

    return write


def test_both_pictures_are_the_same_each_time(specadapt, run_of, tmp_path):
    drawn = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        result = specadapt("bench", "plot", run_of(4), run_of(1), "--out", folder)
        assert result.exit_code == 0, result.stderr
        drawn.append([(folder / f"{name}.svg").read_text() for name in ("by_prompt", "by_load")])
    assert drawn[0] == drawn[1]
    assert all("suffix" in picture and "mine, q4" in picture for picture in drawn[0])
    assert "1 at once" in drawn[0][0]


def test_what_cannot_be_drawn_together_is_refused(specadapt, run_of, tmp_path):
    asked = ["bench", "plot", run_of(1), run_of(4, "elsewhere"), "--out", tmp_path]
    assert "runs of one machine are comparable" in specadapt.refusal(*asked)
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert "not the figures of `bench decode`" in specadapt.refusal(*asked[:2], other, *asked[4:])
