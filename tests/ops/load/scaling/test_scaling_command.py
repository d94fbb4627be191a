"""`bench scaling` refuses what it cannot run, and what it measured becomes tables and a plot."""

import json
import xml.etree.ElementTree as Xml

import numpy as np
import pytest

from ops.load.loadtest.figures import Answered, Target, summary
from ops.load.scaling.figures import Count, demand_figures, replica_figures
from ops.load.scaling.report import tables_of


@pytest.mark.parametrize("policies", ["ongoing_", "ongoing_x", "ongoing_0", "ongoing_nan", "best"])
def test_an_unknown_policy_is_refused(specadapt, tmp_path, policies):
    asked = ["bench", "scaling", "--profile", tmp_path, "--trace", tmp_path / "t.csv"]
    line = specadapt.refusal(*asked, "--policies", policies)
    assert (
        f"--policies: {policies} is unknown; known policies: follow_work, fixed, and ongoing_N"
        in line
    )


def test_every_policy_is_a_line_and_a_row(specadapt, tmp_path):
    answers = [Answered(0.0, 0.0, 0.5, 0.1, 3.0, 20), Answered(4.0, 4.0, error="503")]
    policy = summary(answers, 10.0, Target(1.0, None))
    policy |= replica_figures([Count(0.0, 1, 0, 0), Count(2.0, 1, 0, 1)], 10.0)
    unanswered = summary(answers[1:], 10.0, Target(None, None))
    unanswered |= replica_figures([Count(0.0, 1, 0, 0)], 10.0)
    figures = {
        "demand": demand_figures(np.asarray([0.0, 4.0]), np.asarray([1.0, 2.0]), 10.0),
        "policies": {"follow_work": policy, "fixed": unanswered},
        "settings": {"requests": 2},
    }
    assert len(list(tables_of(figures))) == 2
    file = tmp_path / "scaling.json"
    file.write_text(json.dumps(figures))
    written = specadapt("plot", file, "--out", tmp_path).stdout.split()
    assert written == [str(tmp_path / "scaling-replicas.svg")]
    assert Xml.parse(written[0]).getroot().tag.endswith("svg")
