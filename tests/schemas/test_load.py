"""Messages between processes of different versions of the code."""

import pickle

from schemas import LoadReport
from tests.deployments.observations import observation


def test_a_report_of_an_older_version_has_defaults() -> None:
    report = LoadReport(
        replica="1",
        methods=("naive",),
        running=3,
        waiting=0,
        outstanding_tokens=0,
        free_slots=0,
        time=1.0,
    )
    older = report.model_copy()
    for name in ("prefixes", "heads", "refused_heads"):
        del older.__dict__[name]
    read = pickle.loads(pickle.dumps(older))
    assert (read.prefixes, read.heads, read.refused_heads) == (None, (), {})
    assert read == report == pickle.loads(pickle.dumps(report))


def test_an_observation_of_an_older_version_has_defaults() -> None:
    older = observation("a")
    for name in ("free_to_end", "grammar"):
        del older.__dict__[name]
    read = pickle.loads(pickle.dumps(older))
    assert (read.free_to_end, read.grammar) == (True, False)
