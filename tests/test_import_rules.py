"""Who may import whom: between rooms, between the sub-rooms of one, and never in a circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = {
    "schemas": set(),
    "workers": {"schemas"},
    "router": {"schemas"},
    "deployments": {"schemas", "workers", "router"},
    "training": {"schemas", "workers"},
}
ALL_ROOMS = {*ROOMS, "ops"}
MODEL_LIBRARIES = {"torch", "transformers", "sentence_transformers"}
FORBIDDEN_LIBRARIES = {
    "schemas": {"ray", *MODEL_LIBRARIES},
    "workers": {"ray"},
    "router": {"ray", *MODEL_LIBRARIES},
    "training": {"ray"},
}
# Only the export of the encoder needs torch; everything that serves runs the exported one.
MAY_IMPORT_MODELS = {"router/encoder_export.py"}

ENGINES_SHARE = {
    *("batch_schedule", "bundle", "chat_template", "end_tokens", "engine", "grammar", "looping"),
    *("methods", "refusal", "stream", "text", "token_text"),
}
"""What an engine may import of `workers`: neither another engine nor the loader."""
PARTS_SHARE = {
    *("distribution", "growth", "materials", "models", "parts", "registry", "sequence"),
    *("target_output", "tree"),
}
"""What a drafter, tree, stop, verifier or selector may import of the engine: not the loop."""
BENCHMARK = {"cli", "measure", "service"}

# A sub-room is a folder or file right under its room. One that is named here imports, of its room,
# itself and what stands behind it; the others put the room together and may import all of it.
SUB_ROOMS: dict[str, dict[str, set[str]]] = {
    "workers": {
        "torch_engine": ENGINES_SHARE,
        "vllm_engine": ENGINES_SHARE,
        "replay_engine": ENGINES_SHARE,
        **dict.fromkeys(ENGINES_SHARE, ENGINES_SHARE),
    },
    "workers/torch_engine": {
        "models": set(),
        **dict.fromkeys(("drafters", "trees", "stops", "verifiers", "selectors"), PARTS_SHARE),
    },
    "deployments": {
        "errors": set(),
        "metrics": set(),
        "artifacts": set(),
        "learning": {"errors", "metrics", "artifacts"},
        "request": {"errors", "metrics", "artifacts"},
        "api": {"errors", "metrics", "artifacts", "request"},
        "replica": {"errors", "metrics", "artifacts", "request", "learning"},
    },
    "training": {"demo_corpus": set()},
    "ops": {
        "cli": set(),
        "measure": {"cli"},
        "service": {"cli", "measure"},
        **dict.fromkeys(
            ("decode", "geometry", "http", "load", "routing", "step", "train"), BENCHMARK
        ),
        "balance": BENCHMARK | {"http", "load"},
        "learning": BENCHMARK | {"load"},
        "tune": BENCHMARK | {"routing"},
        "commands": BENCHMARK | {"routing", "load", "learning"},
    },
}


def imported(tree: ast.AST, file: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a file (relative to the root) imports, however it is
    written; `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = file.parts[: -node.level] if node.level else ()
            package = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{package}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func).rpartition(".")[2]
            first = node.args[0]
            if name in {"import_module", "__import__"} and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def files(root: Path) -> list[Path]:
    """Every Python file of the rooms, relative to the root."""
    return [
        file.relative_to(root)
        for room in sorted(ALL_ROOMS)
        for file in sorted((root / room).rglob("*.py"))
    ]


def violations(root: Path) -> list[str]:
    """`file:line imports name` for every import that breaks a rule between rooms or sub-rooms."""
    found = []
    for file in files(root):
        for line, name in imported(ast.parse((root / file).read_text()), file):
            if _breaks_a_room(file, name) or _breaks_a_sub_room(file, name):
                found.append(f"{file.as_posix()}:{line} imports {name}")
    return found


def _breaks_a_room(file: Path, name: str) -> bool:
    room, package = file.parts[0], name.partition(".")[0]
    if room == "ops":
        return False
    forbidden = (ALL_ROOMS - ROOMS[room] - {room}) | FORBIDDEN_LIBRARIES.get(room, set())
    if file.as_posix() in MAY_IMPORT_MODELS:
        forbidden -= MODEL_LIBRARIES
    return package in forbidden


def _breaks_a_sub_room(file: Path, name: str) -> bool:
    path = name.replace(".", "/") + "/"
    for room, rules in SUB_ROOMS.items():
        if not (file.as_posix().startswith(f"{room}/") and path.startswith(f"{room}/")):
            continue
        depth = room.count("/") + 1
        own, other = Path(file.parts[depth]).stem, path.split("/")[depth]
        if own in rules and other and other not in rules[own] | {own}:
            return True
    return False


def circle(root: Path) -> list[str]:
    """The files of one circle of imports, each importing the one after it; empty without any."""
    known = {_dotted(file): file.as_posix() for file in files(root)}
    graph = {
        name: _among(known, imported(ast.parse((root / file).read_text()), Path(file))) - {name}
        for name, file in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [known[name] for name in reversed(error.args[1])]
    return []


def _dotted(file: Path) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def _among(known: dict[str, str], names: Iterator[tuple[int, str]]) -> set[str]:
    """The modules behind imported names, each the name itself or the module that holds it."""
    candidates = (name if name in known else name.rpartition(".")[0] for _, name in names)
    return {name for name in candidates if name in known}


def test_the_rooms_keep_to_the_rules():
    assert violations(ROOT) == []


def test_no_imports_in_a_circle():
    assert circle(ROOT) == []


def test_every_rule_is_about_something_that_is_there():
    for room, rules in SUB_ROOMS.items():
        for name in rules.keys() | set().union(*rules.values()):
            place = ROOT / room / name
            assert place.is_dir() or place.with_suffix(".py").is_file(), place


def write(root: Path, sources: dict[str, str]) -> None:
    for file, source in sources.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(source)


@pytest.mark.parametrize(
    ("file", "source", "expected"),
    [
        ("schemas/a.py", "from router.table import load", "router.table.load"),
        ("workers/deep/a.py", "import router", "router"),
        ("workers/a.py", "def f():\n    import ray.serve", "ray.serve"),
        ("router/a.py", "from workers import engine", "workers.engine"),
        ("router/a.py", "import torch.nn as nn", "torch.nn"),
        ("router/encoder_export.py", "import ray", "ray"),
        ("deployments/a.py", "from ops.prompts import read", "ops.prompts.read"),
        (
            "workers/a.py",
            "import importlib\nimportlib.import_module('router.embed')",
            "router.embed",
        ),
        ("workers/a.py", "from training.trainer import Trainer", "training.trainer.Trainer"),
        ("training/a.py", "import deployments", "deployments"),
        (
            "deployments/api/a.py",
            "from deployments.learning import link",
            "deployments.learning.link",
        ),
        ("deployments/api/a.py", "from ..learning import link", "deployments.learning.link"),
        ("deployments/request/a.py", "import deployments.api.bodies", "deployments.api.bodies"),
        ("deployments/errors.py", "from deployments import metrics", "deployments.metrics"),
        ("deployments/learning/a.py", "from deployments.app import build", "deployments.app.build"),
        ("workers/stream.py", "from workers.loader import f", "workers.loader.f"),
        (
            "workers/vllm_engine/a.py",
            "from workers.torch_engine.tree import ROOT",
            "workers.torch_engine.tree.ROOT",
        ),
        (
            "workers/torch_engine/models/llama.py",
            "from workers.torch_engine.tree import ROOT",
            "workers.torch_engine.tree.ROOT",
        ),
        (
            "workers/torch_engine/drafters/a.py",
            "from workers.torch_engine.scheduler import Scheduler",
            "workers.torch_engine.scheduler.Scheduler",
        ),
        ("ops/measure/a.py", "from ops.load.runs import run", "ops.load.runs.run"),
    ],
)
def test_a_violation_is_caught(tmp_path, file, source, expected):
    write(tmp_path, {file: source})
    [found] = violations(tmp_path)
    assert found.startswith(f"{file}:")
    assert found.endswith(f"imports {expected}")


def test_what_is_allowed_passes(tmp_path):
    allowed = {
        "router/encoder_export.py": "import torch",
        "workers/a.py": "import torch\nfrom . import b\nfrom schemas import DecodeChunk",
        "workers/loader.py": "from workers.torch_engine.engine import TorchEngine",
        "workers/torch_engine/drafters/a.py": "from workers.torch_engine.tree import ROOT",
        "workers/torch_engine/engine.py": "from workers.torch_engine.drafters import a",
        "deployments/a.py": "import ray\nimport router, workers",
        "deployments/api/a.py": "from deployments.request.prompt import Prompt",
        "deployments/ingress.py": "from deployments.learning.link import FeedbackLink",
        "ops/a.py": "import deployments, router, workers, training",
    }
    write(tmp_path, allowed)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (
            {"workers/a.py": "import workers.b", "workers/b.py": "from workers import a"},
            {"workers/a.py", "workers/b.py"},
        ),
        (
            {
                "workers/a.py": "from .deep.b import f",
                "workers/deep/b.py": "def f():\n    from workers.c import g",
                "workers/c.py": "from typing import TYPE_CHECKING\n"
                "if TYPE_CHECKING:\n    from workers.a import h",
            },
            {"workers/a.py", "workers/deep/b.py", "workers/c.py"},
        ),
        (
            {"ops/x/__init__.py": "from ops.x.y import f", "ops/x/y.py": "from ops.x import g"},
            {"ops/x/__init__.py", "ops/x/y.py"},
        ),
    ],
)
def test_a_circle_is_caught(tmp_path, sources, expected):
    write(tmp_path, sources)
    found = circle(tmp_path)
    assert set(found) == expected
    assert found[0] == found[-1]


def test_a_chain_is_no_circle(tmp_path):
    write(
        tmp_path,
        {
            "workers/a.py": "from workers.b import f\nfrom workers import c",
            "workers/b.py": "from workers.c import g",
            "workers/c.py": "import torch",
        },
    )
    assert circle(tmp_path) == []
