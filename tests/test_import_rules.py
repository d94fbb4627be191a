"""Who may import whom: schemas nobody, workers and router not each other, nobody ops."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {
    "schemas": set(),
    "workers": {"schemas"},
    "router": {"schemas"},
    "deployments": {"schemas", "workers", "router"},
}
ALL_ROOMS = {*ROOMS, "ops"}
MODEL_LIBRARIES = {"torch", "transformers", "sentence_transformers"}
FORBIDDEN_LIBRARIES = {
    "schemas": {"ray", *MODEL_LIBRARIES},
    "workers": {"ray"},
    "router": {"ray", *MODEL_LIBRARIES},
}
# Only the export of the encoder needs torch; everything that serves runs the exported one.
MAY_IMPORT_MODELS = {"router/encoder_export.py"}


def imported(tree: ast.AST, room: str) -> Iterator[tuple[int, str]]:
    """Line and top-level package of every import, however it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, room if node.level else (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if name in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value).partition(".")[0]


def violations(root: Path) -> list[str]:
    """`file:line imports package` for every import that breaks a rule."""
    found = []
    for room, allowed in ROOMS.items():
        for file in sorted((root / room).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            forbidden = (ALL_ROOMS - allowed - {room}) | FORBIDDEN_LIBRARIES.get(room, set())
            if name in MAY_IMPORT_MODELS:
                forbidden -= MODEL_LIBRARIES
            for line, package in imported(ast.parse(file.read_text()), room):
                if package in forbidden:
                    found.append(f"{name}:{line} imports {package}")
    return found


def test_the_rooms_keep_to_the_rules():
    assert violations(ROOT) == []


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("schemas/a.py", "from router.table import load", "router"),
        ("workers/deep/a.py", "import router", "router"),
        ("workers/a.py", "def f():\n    import ray.serve", "ray"),
        ("router/a.py", "from workers import engine", "workers"),
        ("router/a.py", "import torch.nn as nn", "torch"),
        ("router/encoder_export.py", "import ray", "ray"),
        ("deployments/a.py", "from ops.measure.prompts import read", "ops"),
        ("workers/a.py", "import importlib\nimportlib.import_module('router.embed')", "router"),
    ],
)
def test_a_violation_is_caught(tmp_path, file, source, expected):
    target = tmp_path / file
    target.parent.mkdir(parents=True)
    target.write_text(source)
    [found] = violations(tmp_path)
    assert found.startswith(f"{file}:")
    assert found.endswith(f"imports {expected}")


def test_what_is_allowed_passes(tmp_path):
    allowed = {
        "router/encoder_export.py": "import torch",
        "workers/a.py": "import torch\nfrom . import b\nfrom schemas import DecodeChunk",
        "deployments/a.py": "import ray\nimport router, workers",
        "ops/a.py": "import deployments, router, workers",
    }
    for file, source in allowed.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(source)
    assert violations(tmp_path) == []
