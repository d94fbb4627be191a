"""The repository keeps to the rules of house_rules.py, and what breaks one is found."""

from pathlib import Path

import pytest
from house_rules import (
    crowded_folders,
    long_files,
    long_pages,
    missing_files,
    unnamed_results,
    unused_modules,
)
from test_import_rules import write

ROOT = Path(__file__).parent.parent
RULES = [
    crowded_folders,
    long_files,
    long_pages,
    missing_files,
    unnamed_results,
    unused_modules,
]


@pytest.mark.parametrize("rule", RULES)
def test_the_repository_keeps_to_the_rule(rule):
    assert rule(ROOT) == []


ENTRY = {"ops/__main__.py": "import ops.a\n"}

ALONE = {"ops/a.py": "", "ops/b.py": "", "tests/test_b.py": "import ops.b"}
NAMING = {"ops/a.py": "", "docs/architecture.md": "`ops/a.py`, `b.py`"}

BROKEN = [
    (crowded_folders, {f"router/m{n}.py": "" for n in range(25)}, "router has 25 Python files"),
    (long_files, {"tests/test_a.py": "x = 1\n" * 451}, "tests/test_a.py has 451 lines"),
    (long_pages, {"bundles/a/README.md": "x\n" * 401}, "bundles/a/README.md has 401 lines"),
    (unused_modules, ALONE, "ops/b.py is not imported"),
    (missing_files, NAMING, "docs/architecture.md names b.py"),
    (unnamed_results, {"docs/results/a.json": "{}"}, "docs/results/a.json is named by no page"),
]


@pytest.mark.parametrize(("rule", "sources", "expected"), BROKEN)
def test_what_breaks_a_rule_is_found(rule, sources, expected, tmp_path):
    write(tmp_path, ENTRY | sources)
    [found] = rule(tmp_path)
    assert expected in found
