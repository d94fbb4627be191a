"""`specadapt plot` with files that are not figures."""

import json

import pytest


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        (None, "not written by bench soak"),
        (3, "not written by bench soak"),
        ("timeline", "not written by bench soak"),
        (["timeline"], "not written by bench soak"),
        ({"answers": 1}, "not written by bench soak"),
        *(
            ({kind: wrong}, "written by another version")
            for kind in ("idle", "timeline")
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
