"""The rules of import_rules.py hold here, and what breaks one is found."""

from pathlib import Path

import pytest
from import_rules import ASSEMBLERS, SUB_PACKAGES, circle, unnamed, violations

ROOT = Path(__file__).parent.parent


def test_the_rooms_keep_to_the_rules():
    assert violations(ROOT) == []


def test_no_imports_in_a_circle():
    assert circle(ROOT) == []


def test_every_place_has_a_rule_or_puts_its_room_together():
    assert unnamed(ROOT) == []


def test_every_rule_is_about_something_that_is_there():
    for room, rules in SUB_PACKAGES.items():
        for name in rules.keys() | set().union(*rules.values(), ASSEMBLERS.get(room, set())):
            place = ROOT / room / name
            assert place.is_dir() or place.with_suffix(".py").is_file(), place


def write(root: Path, sources: dict[str, str]) -> None:
    for file, source in sources.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(source)


TREE = "workers.torch_engine.tree.ROOT"
TREE_IMPORTED = "from workers.torch_engine.tree import ROOT"


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("workers/a.py", "def f():\n    import ray.serve", "ray.serve"),
        ("router/fit/encoder_export.py", "import ray", "ray"),
        ("ops/a.py", "from tests.served import service_config", "tests.served.service_config"),
        ("deployments/api/a.py", "from ..rollout import look", "deployments.rollout.look"),
        ("workers/stream.py", "from workers.loader import f", "workers.loader.f"),
        ("workers/vllm_engine/a.py", TREE_IMPORTED, TREE),
        ("workers/torch_engine/models/llama.py", TREE_IMPORTED, TREE),
    ],
)
def test_a_violation_is_caught(tmp_path, file, source, expected):
    write(tmp_path, {file: source})
    [found] = violations(tmp_path)
    assert found.startswith(f"{file}:")
    assert found.endswith(f"imports {expected}")


def test_a_circle_is_caught(tmp_path):
    sources = {
        "workers/a.py": "from .deep.b import f",
        "workers/deep/b.py": "def f():\n    from workers.c import g",
        "workers/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import workers.a",
    }
    write(tmp_path, sources)
    found = circle(tmp_path)
    assert set(found) == set(sources)
    assert found[0] == found[-1]


def test_a_place_without_a_rule_is_found(tmp_path):
    new = {"workers/new.py", "ops/new/a.py", "workers/torch_engine/models/new.py"}
    named = {"workers/__init__.py", "workers/loader.py", "ops/common/a.py", "deployments/web/a.js"}
    write(tmp_path, dict.fromkeys(new | named, ""))
    assert set(unnamed(tmp_path)) == {"workers/new.py", "ops/new"}
