"""`specadapt plot` with files that are not figures."""

import json

import pytest


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (None, "not written by loadtest"),
        (3, "not written by loadtest"),
        ("timeline", "not written by loadtest"),
        (["timeline"], "not written by loadtest"),
        ({"answers": 1}, "not written by loadtest"),
        *(
            ({"timeline": wrong}, "written by another version")
            for wrong in (3, [3], {"a": 3}, [{"due": 1}])
        ),
    ],
)
def test_what_are_no_figures_is_one_line(specadapt, tmp_path, figures, said):
    file = tmp_path / "figures.json"
    file.write_text(json.dumps(figures))
    message = specadapt.refusal("plot", file, "--out", tmp_path / "plots")
    assert message.startswith(f"specadapt: {file}: ")
    assert said in message
