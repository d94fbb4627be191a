"""docs/methods.md against `specadapt methods`."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "methods.md"
VERDICT = re.compile(r"(runs|equivalent to|measured)\b")


def rows():
    """Return the cells of each published method's row: name, source, verdict."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "method"]


def running(verdict):
    """Return the names that begin a verdict `runs: ...`."""
    names = re.match(r"runs: ((?:`\w+`(?:, )?)+)", verdict)
    return re.findall(r"`(\w+)`", names[1]) if names else []


def test_each_row_is_complete_and_alone():
    assert all(len(row) == 3 for row in rows())
    names = [name for name, *_ in rows()]
    assert len(names) == len(set(names))
    assert all(VERDICT.match(verdict) for *_, verdict in rows())


def test_the_names_that_run_are_those_that_the_command_lists(specadapt):
    listed = {method["name"] for method in specadapt.json("methods")}
    on_page = [name for *_, verdict in rows() for name in running(verdict)]
    assert len(on_page) == len(set(on_page))
    assert set(on_page) == listed
    equivalents = [v for *_, v in rows() if v.startswith("equivalent to")]
    assert all(re.match(r"equivalent to `(\w+)`", v)[1] in listed for v in equivalents)
